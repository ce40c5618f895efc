"""The page in a real browser, before a real server: what it shows is what the runtime says in Python."""

from __future__ import annotations

import pytest

from browsing import Tab, marks
from serving import in_thread
from tersely import runtime
from tiny_artifacts import make

pytestmark = pytest.mark.long

# Two emoji, one of them of several code points, and a Chinese character outside of the basic plane: 𠮷 is two units
# of JavaScript's strings and one character of Python's.
ASTRAL = "😀 the quick 👩‍🚀 brown fox 𠮷野家 jumps 𠮷 near the river 北京是首都 🎉 bank"


def said(folders, name, text):
    return runtime.load(folders[name], threads=1).predict([text])[0]


def test_labels_are_bars_in_the_order_of_their_probability(tab, page_folders):
    tab.open("text-fp32")
    article = tab.ask(text="A film of quiet grace.", text_pair="The quick brown fox.").first
    expected = said(page_folders, "text-fp32", ("A film of quiet grace.", "The quick brown fox."))
    ranked = sorted(expected.scores.items(), key=lambda item: -item[1])
    assert article.locator(".said").inner_text() == expected.label
    assert article.locator(".bar .name").all_inner_texts() == [name for name, _ in ranked]
    assert article.locator(".bar .share").all_inner_texts() == [f"{100 * share:.1f} %" for _, share in ranked]
    widths = article.locator(".bar").evaluate_all(
        "bars => bars.map(bar => bar.querySelector('.fill').clientWidth / bar.querySelector('.track').clientWidth)"
    )
    assert widths == pytest.approx([share for _, share in ranked], abs=0.01)


def test_several_labels_and_numbers(tab, page_folders):
    tab.open("labels-fp32")
    expected = said(page_folders, "labels-fp32", "the old river bank")
    article = tab.ask(text="the old river bank").first
    assert set(article.locator(".chosen .name").all_inner_texts()) == set(expected.label)
    tab.page.select_option("#model", "number-fp32")
    assert tab.page.input_value("#field-text") == "the old river bank", "the text is kept for the next model"
    assert float(tab.ask().first.locator(".said").inner_text()) == pytest.approx(
        said(page_folders, "number-fp32", "the old river bank").value, rel=1e-3
    )


def test_entities_are_marked_where_python_counts_them(tab, page_folders):
    tab.open("tags-fp32")
    expected = said(page_folders, "tags-fp32", ASTRAL)
    found, text = marks(tab.ask(text=ASTRAL).first)
    assert found == [entity.text for entity in expected.entities]
    assert text == ASTRAL
    assert any("𠮷" in text for text in found), "this text must put the counting of characters to the test"
    kinds = tab.page.locator("article").first.locator(".kind").all_text_contents()
    assert [kind.strip("\u2060 ()") for kind in kinds] == [entity.label for entity in expected.entities]


def test_the_answer_is_marked_in_its_context(tab, page_folders):
    tab.open("question-fp32")
    context = (ASTRAL + ". ") * 12
    expected = said(page_folders, "question-fp32", ("what 🎉 did the fox do?", context))
    article = tab.ask(question="what 🎉 did the fox do?", context=context).first
    assert article.locator(".said").inner_text() == expected.text
    before = article.evaluate("article => article.querySelector('.text').firstChild.textContent")
    assert (before, marks(article)) == (context[: expected.start], [[expected.text], context])
    assert tab.page.evaluate(
        """() => { const mark = document.querySelector('.context mark').getBoundingClientRect();
                   const box = document.querySelector('.context').getBoundingClientRect();
                   return mark.top >= box.top && mark.bottom <= box.bottom; }"""
    ), "the mark is scrolled to"


@pytest.mark.parametrize("kind", ["text", "tags"])
def test_both_precisions_stand_side_by_side(tab, page_folders, kind):
    page = tab.open(f"{kind}-int8")
    assert page.input_value("#beside") == f"{kind}-fp32"
    articles = tab.ask(text="The shares rose 12 percent on Friday near the old river bank.")
    assert articles.locator("h2").all_inner_texts() == [f"{kind}-int8", f"{kind}-fp32"]
    assert articles.locator(".badge").all_inner_texts() == ["INT8", "FP32"]
    engines = [runtime.load(page_folders[f"{kind}-{p}"], threads=1).engine.name for p in ("int8", "fp32")]
    assert articles.locator(".engine").all_inner_texts() == [f"on {name}" for name in engines]
    assert all(text.endswith(" ms") for text in articles.locator(".clock strong").all_inner_texts())
    task = runtime.load(page_folders[f"{kind}-fp32"]).task
    pair = [said(page_folders, name, page.input_value("#field-text")) for name in (f"{kind}-int8", f"{kind}-fp32")]
    same, parts = task.agreement(pair[:1], pair[1:])[0]
    assert page.locator(".verdict strong").inner_text() == ("Same answer" if same == parts else "Different answers")
    assert "fast" not in page.locator(".verdict p").inner_text(), "one request each says little of speed"
    page.click(".verdict button")
    page.wait_for_function("() => document.querySelector('.clock').textContent.includes('median of 20')")
    assert "fast" in page.locator(".verdict p").inner_text()


def test_answers_that_differ_are_said_to(tab, page_folders, tmp_path, browser):
    other = {"one": page_folders["tags-fp32"], "two": make(tmp_path / "two", "tags", seed=1)}
    with in_thread(other) as server:
        second = Tab(browser, server.address)
        page = second.open("one")
        page.select_option("#beside", "two")
        articles = second.ask(text=ASTRAL)
        assert page.locator(".verdict strong").inner_text() == "Different answers"
        places = [{(e.start, e.end, e.label) for e in said(other, name, ASTRAL).entities} for name in other]
        alone = [len(places[0] - places[1]), len(places[1] - places[0])]
        assert [articles.nth(i).locator("mark.alone").count() for i in (0, 1)] == alone
        second.context.close()


def test_examples_are_asked_with_a_click(tab):
    page = tab.open("question-fp32")
    page.locator(".example").first.click()
    article = tab.answers().first
    assert page.input_value("#field-question") == page.locator(".example").first.inner_text()
    assert article.locator("mark.answer").inner_text() in page.input_value("#field-context")
