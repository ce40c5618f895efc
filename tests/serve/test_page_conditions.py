"""The page by keyboard, on a phone, in the dark, with script in texts, and before a server that refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from browsing import Held, Tab, marks
from serving import in_thread
from tersely.serve.server_options import Limits
from tersely.tasks import to_json
from tiny_artifacts import TASKS, make, reseal

pytestmark = pytest.mark.long

HOSTILE = """<img src=x onerror="document.title='run'"><script>document.title='run'</script> the fox & <b>bank</b>"""


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
def test_every_width_and_light_is_readable(browser, page_address, width, scheme):
    tab = Tab(browser, page_address, viewport={"width": width, "height": 844}, color_scheme=scheme)
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
    assert page.title() == "Tersely"
    assert page.locator("main img, main script, main b").count() == 0


def test_script_in_a_label_is_text(browser, tmp_path):
    folder, labels = make(tmp_path / "text"), (HOSTILE, "<b>fair</b>", "good")
    reseal(folder, task=to_json(replace(TASKS["text"], labels=labels)))
    with in_thread({"text": folder}) as server:
        tab = Tab(browser, server.address)
        tab.open("text")
        article = tab.ask(text="the fox").first
        assert set(article.locator(".bar .name").all_text_contents()) == set(labels)
        assert (tab.page.title(), tab.page.locator("main img, main script, main b").count()) == ("Tersely", 0)
        tab.context.close()


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


def test_a_busy_server_is_asked_again(browser, page_folders):
    engines = []

    def hold(engine):
        engines.append(Held(engine))
        return engines[0]

    with in_thread({"text": page_folders["text-fp32"]}, Limits(max_queue=1, max_texts=1), engine=hold) as server:
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


def test_a_server_that_ends_is_told(browser, page_folders):
    with in_thread({"text": page_folders["text-fp32"]}) as server:
        tab = Tab(browser, server.address)
        page = tab.open("text")
        tab.ask(text="the fox")
    page.click("#go")
    page.wait_for_selector("#notice .note")
    assert "cannot be reached" in page.locator("#notice").inner_text()
    tab.context.close()


def test_a_key_is_asked_for(browser, page_folders):
    with in_thread({"text": page_folders["text-fp32"]}, api_key="open sesame") as server:
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
        assert not page.locator("#links").is_visible(), "links carry no key"
        tab.context.close()
