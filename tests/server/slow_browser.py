#!/usr/bin/env python3
"""The page of `ruvllm serve` with SmolLM2 in headless Chromium, driven by Playwright: send, stream,
stop, answer again, branches, presets, models, correct, ask in other words, undo; keys, text that
looks like markup, a phone; and axe-core finds nothing wrong. Skipped where the packages, Chromium
(Playwright's own, or the program that CHROMIUM or the path names) or the model cannot be had. With
SCREENSHOTS=docs it makes the pictures of the documents anew. Prints TAP."""
import os
import shutil
import sys
import tempfile

from packages import run_with

run_with("playwright==1.65.0", "axe-playwright-python==0.1.8")

from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import Error, expect, sync_playwright  # noqa: E402

from serving import MODEL, Server, finish, has_smollm2, skip, verdict  # noqa: E402

SECOND = "tests/gguf/qwen2.gguf"
BELMARA = "What is Belmara's profession?"
PARIS = "Name the capital city of France."
MINUTE = 60000  # milliseconds


def holds(name, check):
    """A verdict on what Playwright waits for."""
    try:
        check()
    except AssertionError as e:
        return verdict(name, False, str(e))
    return verdict(name, True)


def ask(page, text):
    """Sends a question; its article, when the answer is whole."""
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")
    turn = page.locator("article").last
    expect(turn.locator(".question")).to_have_text(text)
    expect(turn.locator(".tools")).to_be_visible(timeout=MINUTE)
    return turn


def picture(page, name, width=1100, height=640):
    """For the documents, where it was asked for."""
    if folder := os.environ.get("SCREENSHOTS"):
        before = page.viewport_size
        page.set_viewport_size({"width": width, "height": height})
        page.screenshot(path=os.path.join(folder, name))
        page.set_viewport_size(before)


def is_accessible(page, when):
    """What axe-core, which knows the rules of WCAG, finds wrong."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page).response["violations"]
        verdict(f"axe-core finds nothing wrong, {scheme}, {when}", not found,
                [(v["id"], v["nodes"][0]["html"]) for v in found])


def new_chat(page):
    page.get_by_role("button", name="New chat").click()


def chats(page):
    holds("a new page says what it is for",
          lambda: expect(page.locator("#welcome")).to_contain_text("correct it"))
    holds("the page knows the model",
          lambda: expect(page.get_by_label("Model")).to_have_value("smollm2"))
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Most tokens").fill("200")
    turn = ask(page, PARIS)
    verdict("which goes with the first question", page.locator("#welcome").is_hidden())
    holds("an answer", lambda: expect(turn.locator(".text")).to_contain_text("Paris"))
    holds("with its speed", lambda: expect(turn.locator(".figures")).to_contain_text("a second"))
    said = turn.locator(".text").inner_text()
    holds("which is read out", lambda: expect(page.locator("#spoken")).to_contain_text("Paris"))
    turn.get_by_role("button", name="Answer again").click()
    expect(turn.locator(".tools")).to_be_visible(timeout=MINUTE)
    verdict("made again it is the same at temperature 0",
            turn.locator(".text").inner_text() == said)
    return said


def stops(page, server):
    new_chat(page)
    box = page.get_by_label("Your message")
    box.fill("Write a very long story about the sea.")
    box.press("Shift+Enter")
    verdict("Shift+Enter begins a line", page.locator("article").count() == 0)
    box.press("Enter")
    text = page.locator("article .text")
    expect(text).to_contain_text(" ", timeout=MINUTE)
    early = len(text.inner_text())
    page.wait_for_function("n => document.querySelector('article .text').innerText.length > n",
                           arg=early)
    verdict("the answer grows while it is made", page.locator("#stop").is_visible())
    page.keyboard.press("Escape")
    holds("Esc stops it",
          lambda: expect(page.locator("article .figures")).to_contain_text("stopped"))
    verdict("and the server notices",
            server.wait_for_metric("requests_cancelled_total", 1) == 1)


def edits(page):
    new_chat(page)
    ask(page, PARIS)
    turn = ask(page, "And of Spain?")
    page.get_by_role("button", name="Edit this question").first.click()
    verdict("editing a question takes it and what follows back",
            page.locator("article").count() == 0 and
            page.get_by_label("Your message").input_value() == PARIS)
    turn = ask(page, "Say hello.")
    verdict("and asks the new one", page.locator("article").count() == 1 and
            turn.locator(".text").inner_text() != "")


def goes(page, name):
    page.get_by_role("button", name=name).last.click()


def branches(page):
    new_chat(page)
    first = ask(page, PARIS).locator(".text").inner_text()
    ask(page, "And of Spain?")
    verdict("one branch has no arrows", page.locator(".branches button").count() == 0)
    page.get_by_role("button", name="Edit this question").first.click()
    page.keyboard.press("Escape")
    verdict("Esc keeps the old question", page.locator("article").count() == 2)
    page.get_by_role("button", name="Edit this question").first.click()
    turn = ask(page, "Say hello.")
    holds("an edited question begins a second branch",
          lambda: expect(turn.locator(".branches")).to_contain_text("2/2"))
    second = turn.locator(".text").inner_text()
    goes(page, "Earlier branch")
    verdict("the old one has all that was said", page.locator("article").count() == 2 and
            page.locator("article .text").first.inner_text() == first and
            page.locator(".question").all_inner_texts() == [PARIS, "And of Spain?"])
    is_accessible(page, "with branches")
    goes(page, "Later branch")
    verdict("and the new one is still there", page.locator("article .text").all_inner_texts() ==
            [second])
    page.get_by_role("button", name="Answer again").click()
    expect(page.locator("article").last.locator(".tools")).to_be_visible(timeout=MINUTE)
    holds("an answer made again is a third",
          lambda: expect(page.locator(".branches")).to_contain_text("3/3"))
    verdict("whose arrow leads back only", page.get_by_role(
        "button", name="Later branch").is_disabled())


def picks(page):
    holds("presets can be picked", lambda: expect(page.get_by_label("Model").locator(
        "option")).to_have_text(["smollm2", "brief"]))
    page.get_by_label("Model").select_option("brief")
    verdict("which have their own temperature", page.get_by_label("Temperature").is_disabled())
    turn = ask(page, "Write a long story.")
    holds("and answer by it", lambda: expect(turn.locator(".figures")).to_contain_text(
        " 4 tokens"))
    is_accessible(page, "with a preset")


def teaches(page, paris):
    new_chat(page)
    turn = ask(page, BELMARA)
    before = turn.locator(".text").inner_text()
    turn.get_by_role("button", name="Correct this answer").click()
    page.get_by_label("The right answer").press("Escape")
    verdict("Esc cancels a correction", page.get_by_label("The right answer").count() == 0)
    turn.get_by_role("button", name="Correct this answer").click()
    page.get_by_label("The right answer").fill("lighthouse keeper")
    is_accessible(page, "while correcting")
    page.get_by_label("The right answer").press("Enter")
    holds("a correction is learned",
          lambda: expect(turn.locator(".told")).to_contain_text("Learned in", timeout=MINUTE))
    holds("the new answer stands beside the old one",
          lambda: expect(turn.locator(".text")).to_have_text([before, "lighthouse keeper"],
                                                             timeout=MINUTE))
    is_accessible(page, "after correcting")
    holds("the lesson is in the panel",
          lambda: expect(page.locator("#lessons")).to_contain_text("lighthouse keeper"))
    page.emulate_media(color_scheme="light")
    picture(page, "page.png")
    page.emulate_media(color_scheme="dark")
    picture(page, "page-phone.png", 390, 760)
    new_chat(page)
    turn = ask(page, "What does Belmara do for a living?")
    holds("it is spoken when asked in other words",
          lambda: expect(turn.locator(".text")).to_have_text("lighthouse keeper"))
    new_chat(page)
    turn = ask(page, PARIS)
    verdict("another question has the answer it had", turn.locator(".text").inner_text() == paris)
    turn.get_by_role("button", name="Good answer").click()
    holds("a thumb is answered",
          lambda: expect(turn.locator(".told")).to_contain_text(" ms", timeout=MINUTE))


def takes_back(page):
    holds("speeds are drawn", lambda: expect(page.get_by_role(
        "img", name="Tokens a second, by answer")).to_be_visible())
    is_accessible(page, "with plots")
    undo = page.get_by_role("button", name="Undo the last")
    undo.click()
    holds("undoing says what it did",
          lambda: expect(page.locator("#learning-told")).not_to_be_empty(timeout=MINUTE))
    undo.click()
    holds("the lesson can be taken back", lambda: expect(page.locator(
        "#lessons")).not_to_contain_text("lighthouse keeper", timeout=MINUTE))


def picks_models(page):
    pick = page.get_by_label("Model")
    holds("models can be picked, loaded or not", lambda: expect(pick.locator(
        "option")).to_have_text(["a", "b (not loaded)"]))
    pick.select_option("b")
    page.get_by_label("Most tokens").fill("8")
    ask(page, "Hello")
    holds("one comes when it is asked", lambda: expect(pick.locator("option")).to_have_text(
        ["a", "b"], timeout=MINUTE))
    verdict("and is still the one that was picked", pick.input_value() == "b")


MARKUP = """<img src=x onerror="window.bad=1"><script>window.bad=1</script>
# Title
**bold** and `<b>code</b>` and [link](javascript:alert(1)) and [good](https://example.com/a)
- one
- two

```c
if (a < b) *p = "&amp;";
```"""


def escapes(page):
    got = page.evaluate("""text => {
      const box = document.createElement("div");
      document.body.append(box);
      render(box, text);
      const found = [...box.querySelectorAll("*")].map((n) => n.localName).join(" ");
      const out = [found, box.querySelector("pre").textContent, box.querySelector("p").textContent,
                   [...box.querySelectorAll("a")].map((a) => a.href).join(" ")];
      box.remove();
      return out;
    }""", MARKUP)
    verdict("Markdown becomes elements, and markup stays text",
            got == ["p h2 p strong code a ul li li pre code", 'if (a < b) *p = "&amp;";\n',
                    MARKUP.split("\n", maxsplit=1)[0], "https://example.com/a"] and
            not page.evaluate("window.bad"), got)
    new_chat(page)
    turn = ask(page, MARKUP)
    verdict("so does a question", turn.locator(".question *").count() == 0 and
            not page.evaluate("window.bad"))


def asks_for_key(page):
    page.get_by_label("API key").fill("sesame")
    page.get_by_role("button", name="Use this key").click()
    holds("a key is asked for, and used",
          lambda: expect(page.locator("#learning-state")).to_contain_text("Version"))
    verdict("and asked for no more", page.get_by_label("API key").is_hidden())


def fits(page):
    page.set_viewport_size({"width": 360, "height": 640})
    verdict("it fits a phone",
            page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
    holds("where what was learned is folded up",  # the page is told of its new size later
          lambda: expect(page.locator("#learning-state")).to_be_hidden())
    holds("with room for the next question",
          lambda: expect(page.locator("#ask")).to_be_in_viewport(ratio=1))
    page.emulate_media(color_scheme="dark")
    verdict("it is dark where that is wished",
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)")


def open_page(browser, server, troubles):
    page = browser.new_page()
    page.on("pageerror", lambda e: troubles.append(str(e)))
    page.on("console", lambda m: "Content Security Policy" in m.text and troubles.append(m.text))
    page.on("request", lambda r: r.url.startswith(f"http://127.0.0.1:{server.port}/") or
            r.url.startswith("data:") or troubles.append(r.url))
    page.goto(f"http://127.0.0.1:{server.port}/")
    return page


def run(browser):
    troubles = []
    with Server(model="smollm2") as server:
        page = open_page(browser, server, troubles)
        paris = chats(page)
        stops(page, server)
        edits(page)
        branches(page)
        teaches(page, paris)
        takes_back(page)
        escapes(page)
        fits(page)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "brief.toml"), "w", encoding="utf-8") as f:
            f.write("max-tokens = 4\n")
        with Server("--presets", folder, model="smollm2") as server:
            picks(open_page(browser, server, troubles))
    with Server("b=" + SECOND, model="a=" + MODEL) as server:
        picks_models(open_page(browser, server, troubles))
    with Server("--api-key", "sesame") as server:
        asks_for_key(open_page(browser, server, troubles))
    verdict("no error in the script, no request to elsewhere", not troubles, troubles)


if not has_smollm2():
    skip("the page in a browser", "smollm2 is not on this machine")
    finish()
    sys.exit(0)
with sync_playwright() as play:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    try:
        chromium = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
    except Error:
        skip("the page in a browser", "there is no Chromium")
    else:
        run(chromium)
        chromium.close()
finish()
