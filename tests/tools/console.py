#!/usr/bin/env python3
"""Uses the console in headless Chromium as people do, and as pages of other sites would.

usage: console.py SCRATCH-DIRECTORY TOOLS BASE-URL MOUNT CASE LINK...

TOOLS has Selenium and axe (pip). CASE is one of the functions below; each LINK logs somebody in, and is used up. With
PICTURES=DIR the case `pictures` writes the pictures of docs/console there.
"""

import datetime
import http.server
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

SCRATCH, TOOLS, BASE, MOUNT, CASE, *LINKS = sys.argv[1:]
sys.path.insert(0, TOOLS)

from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

PAGE_BYTES_MAX = 300_000
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DAYS = 5  # before today, on which the cell was used
AXE = next(Path(TOOLS).rglob("axe.min.js")).read_text()


def browser():
    options = webdriver.ChromeOptions()
    for word in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900", f"--user-data-dir={SCRATCH}/{CASE}"]:
        options.add_argument(word)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def check(is_so, what):
    if not is_so:
        raise AssertionError(what)


def find(d, css):
    return d.find_element(By.CSS_SELECTOR, css)


def button(d, words, within="main"):
    found = [b for b in find(d, within).find_elements(By.TAG_NAME, "button") if words in (b.get_attribute("aria-label") or b.text)]
    check(found, f"no button {words} on {d.current_url}: {d.page_source[:3000]}")
    return found[0]


def leads_on(d, act):
    """Does what leads to another page, and waits for that."""
    d.execute_script("window.isOld = true")
    act()
    WebDriverWait(d, 20, ignored_exceptions=[WebDriverException]).until(
        lambda d: d.execute_script("return !window.isOld && document.readyState === 'complete'")
    )


def press(d, element):
    leads_on(d, element.click)


def type_and_enter(d, css, text):
    leads_on(d, lambda: find(d, css).send_keys(text + Keys.ENTER))


def log_in(d, link, name):
    d.get(link)
    check(name in find(d, "main").text, f"the link is not of {name}: {find(d, 'main').text}")
    press(d, button(d, "Log in"))
    check(find(d, "header .who span").text == name, find(d, "header").text)


def told(d):
    return find(d, ".told").text


def row_with(d, text):
    rows = [r for r in d.find_elements(By.CSS_SELECTOR, "tbody tr") if text in r.text]
    check(rows, f"no row with {text} on {d.current_url}: {find(d, 'main').text}")
    return rows[0]


def menu(d):
    return [a.get_attribute("href") for a in d.find_elements(By.CSS_SELECTOR, 'nav[aria-label="Pages"] a')]


def no_errors(d):
    logged = [entry["message"] for entry in d.get_log("browser") if entry["level"] == "SEVERE" and entry["message"].startswith(BASE)]
    check(not logged, f"the browser's console: {logged}")


def accessible(d):
    d.execute_script(AXE)
    found = d.execute_async_script(
        "const done = arguments[0]; axe.run().then(r => done(r.violations.map(v => [v.id, v.impact, v.nodes.map(n => n.html.slice(0, 200))])))"
    )
    check(not found, f"{d.current_url}: {found}")


def pages(d, own):
    """The menu, and what its pages lead to: one address of each page."""
    seen, todo = {}, list(own)
    while todo:
        at = todo.pop()
        kind = at.split("?")[0]
        if kind in seen or not at.startswith(f"{BASE}/console") or kind.endswith(("/file", "/csv")):
            continue
        d.get(at)
        seen[kind] = at
        todo += [a.get_attribute("href") for a in d.find_elements(By.CSS_SELECTOR, "main a")]
    return seen


def charts(d):
    """What was used on the days before is drawn, with a point for each."""
    # without that day a report begins with the month, which may have begun today
    first = datetime.date.today() - datetime.timedelta(days=DAYS + 1)
    for at in ["/volume?name=mine", f"/reports?by=volume&from={first}"]:
        d.get(f"{BASE}/console{at}")
        lines = d.find_elements(By.CSS_SELECTOR, ".chart svg [data-points]")
        check(lines, f"nothing is drawn on {at}: {find(d, 'main').text}")
        points = max(int(line.get_attribute("data-points")) for line in lines)
        check(points >= DAYS, f"{at}: {points} points")


def every_page(d):
    """Of an operator, each page: complete, small, without errors, for screen readers, dark and light, on a phone."""
    log_in(d, LINKS[0], "operator root")
    each_page(d, 15)
    charts(d)


def every_page_of_a_user(d):
    """The same of a user."""
    log_in(d, LINKS[0], os.environ["USER_NAME"])
    each_page(d, 10)
    charts(d)


def each_page(d, least):
    all_pages = pages(d, menu(d))
    check(len(all_pages) >= least, sorted(all_pages))
    slowest = 0
    for at in all_pages.values():
        d.get(at)
        no_errors(d)
        check(len(d.find_elements(By.TAG_NAME, "h1")) == 1, at)
        sizes = d.execute_script(
            "return performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation')).map(r => r.decodedBodySize)"
        )
        check(sum(sizes) <= PAGE_BYTES_MAX, f"{at}: {sum(sizes)} bytes")
        took = d.execute_script("const n = performance.getEntriesByType('navigation')[0]; return n.responseEnd - n.requestStart")
        slowest = max(slowest, took)
        for scheme in ["light", "dark"]:
            d.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            accessible(d)
        d.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        wide = d.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        check(wide <= 0, f"{at} is {wide} pixels wider than a phone")
        d.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    print(f"NOTE {len(all_pages)} pages; the slowest took {slowest:.0f} ms")


def a_user_helps_himself(d):
    """Snapshot, restore, recycle bin, keys: with the mouse, in the browser."""
    name = os.environ["USER_NAME"]
    log_in(d, LINKS[0], name)
    check(not any(at.endswith(("/pools", "/machines", "/alerts")) for at in menu(d)), menu(d))
    d.get(f"{BASE}/console/volumes")
    press(d, row_with(d, "mine").find_element(By.TAG_NAME, "a"))
    find(d, 'form[action="/console/snapshots/create"] input[name="name"]').send_keys("by-mouse")
    press(d, button(d, "Take a snapshot"))
    check("Took snapshot by-mouse" in told(d), told(d))
    os.unlink(f"{MOUNT}/mine/papers/thesis.txt")
    press(d, row_with(d, "by-mouse").find_element(By.TAG_NAME, "a"))
    press(d, row_with(d, "papers/").find_element(By.TAG_NAME, "a"))
    press(d, row_with(d, "thesis.txt").find_element(By.TAG_NAME, "button"))
    check("Restored /mine/papers/thesis.txt" in told(d), told(d))
    check(Path(f"{MOUNT}/mine/papers/thesis.txt").read_text() == "years of work\n", "another file")
    check(os.stat(f"{MOUNT}/mine/papers/thesis.txt").st_uid == os.stat(f"{MOUNT}/mine").st_uid, "of another owner")
    # a tree, beside what is there
    d.back()
    d.get(re.sub(r"/papers(?=&in=)", "", d.current_url))
    press(d, row_with(d, "papers/").find_element(By.TAG_NAME, "button"))
    check("papers.restored-by-mouse" in told(d), told(d))
    check(Path(f"{MOUNT}/mine/papers.restored-by-mouse/thesis.txt").read_text() == "years of work\n", "another tree")
    os.unlink(f"{MOUNT}/mine/papers/thesis.txt")
    d.get(f"{BASE}/console/bin")
    press(d, button(d, "Restore: /mine/papers/thesis.txt"))
    check("Restored /mine/papers/thesis.txt" in told(d), told(d))
    check(os.path.exists(f"{MOUNT}/mine/papers/thesis.txt"), "it is not back")
    d.get(f"{BASE}/console/pools")
    check("for operators" in told(d), told(d))
    tokens(d)
    keys(d)


def status_with(token, path):
    """What the HTTP door answers to who has this token."""
    asked = urllib.request.Request(f"{BASE}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        return urllib.request.urlopen(asked, timeout=10).status
    except urllib.error.HTTPError as e:
        return e.code


def tokens(d):
    d.get(f"{BASE}/console/keys")
    where = find(d, 'form[action="/console/keys/token"] input[name="path"]')
    where.clear()
    where.send_keys("/mine/papers")
    press(d, button(d, "Make a token"))
    token = find(d, ".told dd code").text
    check(status_with(token, "/mine/papers/thesis.txt") == 200, "a token to read")
    check(status_with(token, "/mine/") == 403, "it is for what is below its path")
    press(d, button(d, "Make all tokens void"))
    check(status_with(token, "/mine/papers/thesis.txt") == 401, "it is void")


def keys(d):
    d.get(f"{BASE}/console/keys")
    find(d, 'form[action="/console/keys/create"] input[name="label"]').send_keys("laptop")
    press(d, button(d, "Make a key"))
    secrets = [e.text for e in d.find_elements(By.CSS_SELECTOR, ".told dd code")]
    check(len(secrets) == 2 and len(secrets[1]) == 40, told(d))
    d.refresh()
    check(secrets[1] not in d.page_source, "the secret is shown again")
    d.delete_all_cookies()
    d.get(f"{BASE}/console/keys")
    check(d.current_url.startswith(f"{BASE}/console/login"), d.current_url)
    find(d, 'input[name="id"]').send_keys(secrets[0])
    type_and_enter(d, 'input[name="secret"]', "wrong")
    check("no such key" in told(d), told(d))
    find(d, 'input[name="id"]').send_keys(secrets[0])
    type_and_enter(d, 'input[name="secret"]', secrets[1])
    check(d.current_url == f"{BASE}/console/keys", f"one goes on where one was: {d.current_url}")
    check(len(d.find_elements(By.XPATH, "//button[starts-with(@aria-label, 'End: ')]")) >= 1, "the session by the link")
    press(d, button(d, f"Revoke: key {secrets[0]}"))
    check(d.current_url.startswith(f"{BASE}/console/login"), f"the key's session goes on: {d.current_url}")


def by_keyboard(d):
    """All that the mouse does, the keyboard does, and it is seen where one is."""
    log_in(d, LINKS[0], "operator root")
    d.get(f"{BASE}/console/volumes")
    body = find(d, "body")
    body.send_keys(Keys.TAB)
    check(d.switch_to.active_element.text == "To the content", d.switch_to.active_element.text)
    d.switch_to.active_element.send_keys(Keys.ENTER)
    d.switch_to.active_element.send_keys(Keys.TAB)
    check(d.switch_to.active_element.get_attribute("name") == "q", "the first thing of the content")
    outline = d.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    check(outline == "solid", outline)
    type_and_enter(d, 'input[name="q"]', "mine")
    check("q=mine" in d.current_url and row_with(d, "mine"), d.current_url)


def tab_to(d, words):
    """Presses Tab until something of these words is where one is."""
    for _ in range(200):
        d.switch_to.active_element.send_keys(Keys.TAB)
        at = d.switch_to.active_element
        if words in (at.get_attribute("aria-label") or at.text) and at.tag_name in ("a", "button"):
            return
    check(False, f"no {words} by Tab on {d.current_url}")


def restored_by_keyboard(d):
    """A user brings a file back, and the mouse stays where it is."""
    log_in(d, LINKS[0], os.environ["USER_NAME"])
    d.get(f"{BASE}/console/volumes")
    for words in ["mine", "before", "papers", "Restore: thesis.txt"]:
        tab_to(d, words)
        leads_on(d, lambda: d.switch_to.active_element.send_keys(Keys.ENTER))
    check("thesis.txt.restored-before" in told(d), told(d))
    check(Path(f"{MOUNT}/mine/papers/thesis.txt.restored-before").read_text() == "years of work\n", "another file")


def it_goes_on_by_itself(d):
    """The first page shows what happens after it was opened, and can be stopped."""
    log_in(d, LINKS[0], "operator root")
    end = time.monotonic() + 60
    worker = threading.Thread(target=busy, args=(end,), daemon=True)
    worker.start()
    shown = lambda d: "root" in find(d, "[data-live]").text and "make" in find(d, "[data-live]").text  # noqa: E731
    WebDriverWait(d, 30).until(shown)
    no_errors(d)
    button(d, "Pause", "body").click()
    before = find(d, "[data-live]").get_attribute("innerHTML")
    time.sleep(7)
    check(find(d, "[data-live]").get_attribute("innerHTML") == before, "it went on")


def busy(end):
    count = 0
    while time.monotonic() < end:
        path = f"{MOUNT}/busy-{count % 10}"
        Path(path).write_text("x")
        os.unlink(path)
        count += 1
        time.sleep(0.005)


class Evil(http.server.BaseHTTPRequestHandler):
    """A page of another site, which sends a form to the console, shows it in a frame, and reads it."""

    def do_GET(self):
        text = f"""<!DOCTYPE html><title>evil</title>
            <form id=f method=post action="{BASE}/console/snapshots/create"><input name=path value=/mine><input name=name value=stolen></form>
            <iframe src="{BASE}/console/keys"></iframe>
            <script>
              fetch("{BASE}/console/keys", {{credentials: "include"}}).then(a => a.text()).then(t => document.title = "read " + t.length, () => document.title = "not read")
            </script>""".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def another_site(d):
    """Pages of others neither read nor change anything, though the browser is logged in."""
    log_in(d, LINKS[0], os.environ["USER_NAME"])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    d.get(f"http://127.0.0.1:{server.server_port}/")
    WebDriverWait(d, 10).until(lambda d: d.title != "evil")
    check(d.title == "not read", d.title)
    d.switch_to.frame(find(d, "iframe"))
    check(not d.find_elements(By.CSS_SELECTOR, "form"), "it is shown in a frame")
    d.switch_to.default_content()
    d.execute_script("document.getElementById('f').submit()")
    WebDriverWait(d, 10).until(lambda d: d.current_url.startswith(BASE))
    check("another site" in told(d), told(d))
    d.get(f"{BASE}/console/snapshots?path=/mine")
    check("stolen" not in find(d, "main").text, "a snapshot was taken")
    server.shutdown()


def names_run_nothing(d):
    """Names of files that are scripts are shown as they are, wherever they appear."""
    log_in(d, LINKS[0], "operator root")
    evil = "<img src=x onerror=document.title='run'>"
    for at in ["/files?path=/mine", "/bin", "/snapshots?path=/mine", "/files?path=/mine/.snap/before&in=/mine/.snap/before", "/volumes"]:
        d.get(f"{BASE}/console{at}")
        check(d.title != "run" and not d.find_elements(By.CSS_SELECTOR, "main img"), at)
        if "files" in at or "bin" in at:
            check(evil in find(d, "main").text, f"{at}: {find(d, 'main').text}")
    no_errors(d)
    # the file itself is stored, not shown
    d.get(f"{BASE}/console/file?path=/mine/page.html")
    time.sleep(0.5)
    check(d.title != "run", "a page of a user was shown")


def at_the_provider(d):
    """People log in at the site's provider, and come back to where they were going."""
    def sign_on(user, page="/console/volumes"):
        d.delete_all_cookies()
        d.get(f"{BASE}{page}")
        press(d, d.find_element(By.LINK_TEXT, "Log in with Example"))
        find(d, 'input[name="user"]').send_keys(user)
        press(d, button(d, "Log in", "body"))

    sign_on("alice.adams")
    check(d.current_url == f"{BASE}/console/volumes", d.current_url)
    check(find(d, "header .who span").text == os.environ["USER_NAME"], "as whom?")
    no_errors(d)
    back = f"{BASE}/console/sign-on/back?code=x&state=y"
    d.get(back)
    check("begun in another browser" in told(d), told(d))
    sign_on("olga", "/console/pools")
    check(d.current_url == f"{BASE}/console/pools" and find(d, "header .who span").text == "operator olga", d.current_url)
    d.get(f"{BASE}/console/keys")
    check("Example (olga)" in find(d, "main").text, find(d, "main").text)
    sign_on("mallory")
    check("another service" in told(d), told(d))
    sign_on("nobody-here")
    check(d.current_url.startswith(f"{BASE}/console/login") and "no user nobody-here" in told(d), told(d))
    sign_on("")
    check("Example says: access_denied <script>" in told(d), told(d))
    accessible(d)


def pictures(d):
    """Writes the pictures of the documentation."""
    to = Path(os.environ["PICTURES"])
    to.mkdir(parents=True, exist_ok=True)
    log_in(d, LINKS[0], "operator root")
    threading.Thread(target=busy, args=(time.monotonic() + 60,), daemon=True).start()
    time.sleep(8)
    for name, at in [("now", ""), ("volume", "/volume?name=mine"), ("snapshot", "/files?path=/mine/.snap/before/papers&in=/mine/.snap/before"), ("alerts", "/alerts")]:
        d.get(f"{BASE}/console{at}")
        d.save_screenshot(str(to / f"{name}.png"))
    d.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    d.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    d.get(f"{BASE}/console/volumes")
    d.save_screenshot(str(to / "phone.png"))


def main():
    case = globals()[CASE]
    d = browser()
    try:
        case(d)
        print(json.dumps({"case": CASE, "ok": True}))
    finally:
        d.quit()


if __name__ == "__main__":
    main()
