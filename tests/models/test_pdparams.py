"""Arrays come out of a pickle, and nothing else does: what else it holds is named, and never called."""

from __future__ import annotations

import collections
import functools
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from paddle_checkpoints import Tensor, write_pickle
from tersely.errors import UserError
from tersely.models.convert.pdparams import read_pdparams

ARRAYS = {
    "table": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.linspace(-2, 2, 5).astype(np.float16),
    "columns first": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "big end first": np.arange(3, dtype=">f4"),
    "nothing": np.zeros((0, 3), np.float32),
    "one number": np.array(2.5, np.float32),
}


class Called:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def refused(path, content, protocol=4):
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=protocol))
    with pytest.raises(UserError) as caught:
        read_pdparams(path)
    assert caught.value.where == str(path)
    assert caught.value.hint
    return caught.value.what


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("form", ["tuples", "arrays"])
def test_arrays_come_back_equal(form, protocol, tmp_path):
    write_pickle(tmp_path / "a.pdparams", {k: v for k, v in ARRAYS.items() if v.size}, form=form, protocol=protocol)
    read = read_pdparams(tmp_path / "a.pdparams")
    assert list(read) == [name for name, array in ARRAYS.items() if array.size]
    for name, array in read.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype.newbyteorder("=")


def test_empty_arrays_and_ordered_dictionaries_are_read(tmp_path):
    content = collections.OrderedDict(nothing=Tensor("w", ARRAYS["nothing"]))
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps(content, protocol=4))
    assert read_pdparams(tmp_path / "a.pdparams")["nothing"].shape == (0, 3)


def test_numpy_of_other_generations_is_read(tmp_path):
    """NumPy 1 and 2 name the same function differently."""
    raw = pickle.dumps(ARRAYS["table"], protocol=2)
    new, old = b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"
    assert (new in raw) != (old in raw)
    for other in (raw.replace(new, old), raw.replace(old, new)):
        # A dictionary around it: {"table": array}
        content = b"\x80\x02}X\x05\x00\x00\x00table" + other[2:-1] + b"s."
        (tmp_path / "a.pdparams").write_bytes(content)
        np.testing.assert_array_equal(read_pdparams(tmp_path / "a.pdparams")["table"], ARRAYS["table"])


def test_slices_of_a_large_array_are_joined(tmp_path):
    flat = ARRAYS["table"].ravel()
    content = {
        "table@@.0": flat[:7],
        "table@@.1": flat[7:],
        "UnpackBigParamInfor@@": {"table": {"OriginShape": (3, 4), "slices": ["table@@.0", "table@@.1"]}},
        "StructuredToParameterName@@": {"table": "w_0"},
    }
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps(content, protocol=2))
    read = read_pdparams(tmp_path / "a.pdparams")
    assert list(read) == ["table"]
    np.testing.assert_array_equal(read["table"], ARRAYS["table"])
    del content["table@@.1"]
    assert "slices do not fit together" in refused(tmp_path / "b.pdparams", content)


def hostile(proof):
    """Ways to make a careless reader touch a file, and the name that must be in the message."""
    command = f"touch {proof}"
    return {
        "os.system": (Called(os.system, command), f"{os.name}.system"),
        "eval": (Called(eval, f"open({str(proof)!r}, 'w')"), "builtins.eval"),
        "exec": (Called(exec, f"open({str(proof)!r}, 'w')"), "builtins.exec"),
        "getattr": (Called(getattr, "a", "upper"), "builtins.getattr"),
        "a function of numpy": (Called(np.save, str(proof), np.zeros(1)), "numpy.save"),
        "loading of numpy": (Called(np.load, str(proof)), "numpy.load"),
        "a file": (Called(np.fromfile, str(proof)), "fromfile"),
        "Path.touch": (Called(Path.touch, proof), ""),
        "objects in an array": (np.array([{}], dtype=object), "numpy.dtype('O"),
        "records": (np.zeros(1, dtype=[("a", "f4")]), "numpy.dtype('V"),
        "a class": (Path("a"), "Path"),
        "a scalar of numpy": (np.float32(1), "scalar"),
        "partial": (functools.partial(os.system, command), "functools.partial"),
    }


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("case", hostile(Path("proof")))
def test_hostile_pickle_is_refused_and_not_executed(case, protocol, tmp_path):
    proof = tmp_path / "proof"
    content, name = hostile(proof)[case]
    for place in ({"weight": content}, {"weight": Tensor("w", content)}, [content]):
        what = refused(tmp_path / "a.pdparams", place, protocol)
        assert name.replace("builtins", "") in what.replace("__builtin__", "")
        assert "not executed" in what
        assert not proof.exists()


def test_opcodes_by_hand_reach_nothing(tmp_path):
    proof = tmp_path / "proof"
    system = os.system.__module__.encode()
    kind = b"cnumpy\ndtype\nX\x02\x00\x00\x00f4\x85R"
    array = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R"
    cases = {
        "old way of a call": b"(S'touch " + str(proof).encode() + b"'\ni" + system + b"\nsystem\n.",
        "a path through attributes": b"\x80\x04\x8c\x05numpy\x8c\x0bctypes.CDLL\x93.",
        "attributes of a stand-in": b"\x80\x02cnumpy\ndtype\nN}X\x08\x00\x00\x00__call__K\x01s\x86b.",
        "class of a stand-in": b"\x80\x02cnumpy\ndtype\n}X\x09\x00\x00\x00__class__K\x01sb.",
        "a persistent number": b"\x80\x02K\x01Q.",
        "a registered extension": b"\x80\x02\x82\x01.",
        "a length for bytes": array + b"(K\x01K\x01\x85" + kind + b"\x89J\xff\xff\xff\x7ftb.",
        "a shape to be guessed": array + b"(K\x01J\xff\xff\xff\xff\x85" + kind + b"\x89C\x00tb.",
    }
    for content in cases.values():
        refused(tmp_path / "a.pdparams", content)
        assert not proof.exists()
    assert read_pdparams_still_works(tmp_path)


def read_pdparams_still_works(folder):
    write_pickle(folder / "good.pdparams", {"table": ARRAYS["table"]})
    return read_pdparams(folder / "good.pdparams")["table"].shape == (3, 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1, 2], "must be a dictionary of arrays. Got list"),
        ({"epoch": 3}, "Got int under 'epoch'"),
        ({3: np.zeros(2, np.float32)}, "under 3"),
        ({"a": [np.zeros(2, np.float32)]}, "Got list under 'a'"),
        ({"a": {"b": np.zeros(2, np.float32)}}, "Got dict under 'a'"),
    ],
)
def test_what_is_no_array_is_named(content, said, tmp_path):
    assert said in refused(tmp_path / "a.pdparams", content)


def test_truncated_file_is_named_wherever_it_ends(tmp_path):
    write_pickle(tmp_path / "whole.pdparams", ARRAYS)
    content = (tmp_path / "whole.pdparams").read_bytes()
    for end in range(0, len(content) - 1, 7):
        assert "cannot be read" in refused(tmp_path / "a.pdparams", content[:end])
