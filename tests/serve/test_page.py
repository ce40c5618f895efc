"""The page in a real browser, before a real server: what it shows is what the runtime says in Python."""

from __future__ import annotations

import pytest

from browsing import Held, Tab, browsing, make_models
from laconic import runtime
from laconic.serve.limits import Limits
from serving import in_thread
from tiny_artifacts import make

pytestmark = pytest.mark.long

# Two emoji, one of them of several code points, and a Chinese character outside of the basic plane: 𠮷 is two units
# of JavaScript's strings and one character of Python's.
ASTRAL = "😀 the quick 👩‍🚀 brown fox 𠮷野家 jumps 𠮷 near the river 北京是首都 🎉 bank"
HOSTILE = """<img src=x onerror="document.title='run'"><script>document.title='run'</script> the fox & <b>bank</b>"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def address(folders):
    with in_thread(folders, Limits(max_text_length=2000)) as server:
        yield server.address


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found


@pytest.fixture
def tab(browser, address):
    opened = Tab(browser, address)
    yield opened
    opened.context.close()
    assert opened.complaints == []
    assert {url for url in opened.asked if not url.startswith(f"{address}/")} == set(), "a request left the host"


def said(folders, name, text):
    return runtime.load(folders[name], threads=1).predict([text])[0]


def marks(article):
    """Marked stretches, and the text with them as it is read, without the labels that are drawn beside them."""
    return article.evaluate(
        """article => {
          const text = article.querySelector('.text').cloneNode(true);
          text.querySelectorAll('.kind').forEach(kind => kind.remove());
          return [[...text.querySelectorAll('mark')].map(mark => mark.textContent), text.textContent];
        }"""
    )


def test_labels_are_bars_in_the_order_of_their_probability(tab, folders):
    tab.open("text-fp32")
    article = tab.ask(text="A film of quiet grace.", text_pair="The quick brown fox.").first
    expected = said(folders, "text-fp32", ("A film of quiet grace.", "The quick brown fox."))
    ranked = sorted(expected.scores.items(), key=lambda item: -item[1])
    assert article.locator(".said").inner_text() == expected.label
    assert article.locator(".bar .name").all_inner_texts() == [name for name, _ in ranked]
    assert article.locator(".bar .share").all_inner_texts() == [f"{100 * share:.1f} %" for _, share in ranked]
    widths = article.locator(".bar").evaluate_all(
        "bars => bars.map(bar => bar.querySelector('.fill').clientWidth / bar.querySelector('.track').clientWidth)"
    )
    assert widths == pytest.approx([share for _, share in ranked], abs=0.01)


def test_several_labels_and_numbers(tab, folders):
    tab.open("labels-fp32")
    expected = said(folders, "labels-fp32", "the old river bank")
    article = tab.ask(text="the old river bank").first
    assert set(article.locator(".chosen .name").all_inner_texts()) == set(expected.label)
    tab.page.select_option("#model", "number-fp32")
    assert tab.page.input_value("#field-text") == "the old river bank", "the text is kept for the next model"
    assert float(tab.ask().first.locator(".said").inner_text()) == pytest.approx(
        said(folders, "number-fp32", "the old river bank").value, rel=1e-3
    )


def test_entities_are_marked_where_python_counts_them(tab, folders):
    tab.open("tags-fp32")
    expected = said(folders, "tags-fp32", ASTRAL)
    found, whole = marks(tab.ask(text=ASTRAL).first)
    assert found == [entity.text for entity in expected.entities]
    assert whole == ASTRAL
    assert any("𠮷" in text for text in found), "this text must put the counting of characters to the test"
    kinds = tab.page.locator("article").first.locator(".kind").all_text_contents()
    assert [kind.strip("\u2060 ()") for kind in kinds] == [entity.label for entity in expected.entities]


def test_the_answer_is_marked_in_its_context(tab, folders):
    tab.open("question-fp32")
    context = (ASTRAL + ". ") * 12
    expected = said(folders, "question-fp32", ("what 🎉 did the fox do?", context))
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
def test_both_precisions_stand_side_by_side(tab, folders, kind):
    page = tab.open(f"{kind}-int8")
    assert page.input_value("#beside") == f"{kind}-fp32"
    articles = tab.ask(text="The shares rose 12 percent on Friday near the old river bank.")
    assert articles.locator("h2").all_inner_texts() == [f"{kind}-int8", f"{kind}-fp32"]
    assert articles.locator(".badge").all_inner_texts() == ["INT8", "FP32"]
    assert all(text.endswith(" ms") for text in articles.locator(".clock strong").all_inner_texts())
    task = runtime.load(folders[f"{kind}-fp32"]).task
    pair = [said(folders, name, page.input_value("#field-text")) for name in (f"{kind}-int8", f"{kind}-fp32")]
    same, parts = task.agreement(pair[:1], pair[1:])[0]
    assert page.locator(".verdict strong").inner_text() == ("Same answer" if same == parts else "Different answers")
    assert "fast" not in page.locator(".verdict p").inner_text(), "one request each says little of speed"
    page.click(".verdict button")
    page.wait_for_function("() => document.querySelector('.clock').textContent.includes('median of 20')")
    assert "fast" in page.locator(".verdict p").inner_text()


def test_answers_that_differ_are_said_to(tab, folders, tmp_path, browser):
    other = {"one": folders["tags-fp32"], "two": make(tmp_path / "two", "tags", seed=1)}
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


def test_all_of_it_works_by_keyboard(tab):
    page = tab.open("labels-fp32")
    page.wait_for_selector("#ask:not([hidden])")
    press = page.keyboard.press

    def focused():
        return page.evaluate("document.activeElement.id || document.activeElement.className")

    press("Tab")
    assert focused() == "model"
    page.keyboard.type("tags-int8")  # a list is searched by typing
    press("Tab")
    assert (page.input_value("#model"), focused()) == ("tags-int8", "beside")
    press("Tab")
    assert focused() == "field-text"
    page.keyboard.type("the fox near the bank")
    press("Control+Enter")
    assert tab.answers().count() == 2
    assert page.locator("#spoken").inner_text().startswith("tags-int8: ")
    press("Tab")
    assert focused() == "example", "the focus stays while answers come"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("Enter")
    page.wait_for_function("() => document.querySelector('#field-text').value !== 'the fox near the bank'")
    tab.answers()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_every_width_and_light_is_readable(browser, address, width, scheme):
    tab = Tab(browser, address, viewport={"width": width, "height": 844}, color_scheme=scheme)
    for model in ("text-int8", "tags-int8", "question-fp32", "labels-fp32"):
        page = tab.open(model)
        page.wait_for_function("name => document.querySelector('#model').value === name", arg=model)
        long = "x" * 300 + " the quick brown fox near the river bank"
        tab.ask(**({"question": "what?", "context": long} if model == "question-fp32" else {"text": long}))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) >= 4.5
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in paper[4:-1].split(",")) < 200) == (scheme == "dark")
    tab.context.close()


# The lowest contrast of any text with what is behind it, as WCAG 2 has it; all colours here are opaque.
CONTRAST = """() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => { const [r, g, b] = numbers(colour).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = node => { const colour = getComputedStyle(node).backgroundColor;
    return numbers(colour)[3] === 0 ? behind(node.parentElement) : colour; };
  const texts = [...document.querySelectorAll('body *')].filter(node => node.checkVisibility() &&
    [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()));
  return Math.min(...texts.map(node => { const pair = [light(getComputedStyle(node).color), light(behind(node))];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05); }));
}"""


@pytest.mark.parametrize(
    ("model", "field"), [("text-fp32", "text"), ("tags-fp32", "text"), ("question-fp32", "context")]
)
def test_script_in_a_text_is_text(tab, model, field):
    page = tab.open(model)
    more = {"question": "<b>who?</b>"} if field == "context" else {}
    article = tab.ask(**{field: HOSTILE, **more}).first
    if model != "text-fp32":
        assert marks(article)[1] == HOSTILE
    page.wait_for_timeout(200)
    assert page.title() == "Laconic"
    assert page.locator("main img, main script, main b").count() == 0


def test_limits_are_told_in_the_servers_words(tab):
    page = tab.open("text-fp32")
    page.fill("#field-text", "x" * 2001)
    page.click("#go")
    note = page.locator("#notice .note")
    note.wait_for()
    assert "2001 characters" in note.inner_text()
    assert "2000" in note.inner_text()
    assert page.locator("article").count() == 0
    tab.ask(text="short")
    assert note.count() == 0
    tab.complaints.clear()  # the browser itself logs every 422


def test_a_busy_server_is_asked_again(browser, folders):
    engines = []

    def hold(engine):
        engines.append(Held(engine))
        return engines[0]

    with in_thread({"text": folders["text-fp32"]}, Limits(max_queue=1, max_texts=1), engine=hold) as server:
        (held,) = engines
        first, second = Tab(browser, server.address), Tab(browser, server.address)
        first.open("text")
        first.page.fill("#field-text", "the fox")
        first.page.click("#go")
        assert held.begun.wait(20)
        page = second.open("text")
        page.fill("#field-text", "the bank")
        page.click("#go")
        note = page.locator("#notice .note")
        note.wait_for()
        assert "busy" in note.inner_text()
        assert "Too many requests" in note.inner_text()
        held.let_go.set()
        assert first.answers().count() == 1
        note.locator("button").click()
        assert second.answers().count() == 1
        assert note.count() == 0
        first.context.close()
        second.context.close()


def test_a_server_that_ends_is_told(browser, folders):
    with in_thread({"text": folders["text-fp32"]}) as server:
        tab = Tab(browser, server.address)
        page = tab.open("text")
        tab.ask(text="the fox")
    page.click("#go")
    page.wait_for_selector("#notice .note")
    assert "cannot be reached" in page.locator("#notice").inner_text()
    tab.context.close()


def test_a_key_is_asked_for(browser, folders):
    with in_thread({"text": folders["text-fp32"]}, api_key="open sesame") as server:
        tab = Tab(browser, server.address)
        page = tab.open("text")
        page.fill("#key-field", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelector('#notice').textContent.includes('wrong')")
        page.fill("#key-field", "open sesame")
        page.keyboard.press("Enter")
        page.wait_for_selector("#ask:not([hidden])")
        assert tab.ask(text="the fox").count() == 1
        assert not page.locator("#key").is_visible()
        tab.context.close()
