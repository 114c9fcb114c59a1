#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""openmps-exporter's page in a real Chromium: a program appears, its bar grows, it is held back, and a click ends it; the
page loads nothing from elsewhere, speaks two languages, and shows a command line as text whatever is in it. Over TCP
nothing changes without the token, whatever the browser or another page sends. Needs Debian's packages chromium,
chromium-driver and python3-selenium.

  page_test.py --build BUILD [--pictures FOLDER: of the page, in both languages]"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from exporter_tools import CLIENT_LIMIT_S, Exporter, Missing, eventually, need, require, run_test
from scenario_tools import ready

TOKEN = "0123456789abcdef0123456789abcdef"
NASTY = "<img src=x onerror=document.title='taken'>"


def browser(folder):
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        raise Missing("python3-selenium") from None
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en",
                     "--window-size=1440,1100", f"--user-data-dir={folder}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    # Not our proxy settings, and not the sandbox's library path.
    env = {**os.environ, "no_proxy": "127.0.0.1,localhost"}
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver", env=env), options=options)


def refusals(box, exporter, server, client):
    """What must not end a program."""
    terminate = {"action": "terminate", "server": server, "client": client}
    bearer = {"Authorization": "Bearer " + TOKEN}
    for headers, what in (({}, "no token"), ({"Authorization": "Bearer " + TOKEN[:-1] + "0"}, "a wrong token"),
                          ({**bearer, "Origin": "http://evil.example"}, "another page"),
                          ({**bearer, "Host": "evil.example"}, "another name for this address")):
        status, answer = exporter.act(terminate, headers)
        require(status == 403 and not answer["ok"], f"{what}: {status} {answer}")
    status, answer = exporter.act(terminate, {**bearer, "Content-Type": "text/plain"})
    require(status == 415, f"a form of another page: {status} {answer}")
    for wanted in ({}, {**terminate, "action": "quit"}, {**terminate, "client": "1 quit"}):
        status, answer = exporter.act(wanted, bearer)
        require(status == 400 and not answer["ok"], f"{wanted}: {status} {answer}")
    status, _, _ = exporter.request("POST", "/act", {**bearer, "Content-Type": "application/json"}, "x" * 100_000)
    require(status == 413, f"a long request: {status}")
    status, _, text = exporter.request("GET", "/metrics", {"Host": "evil.example:80"})
    require(status == 403 and "openmps_up" not in text, f"by another name: {status} {text}")
    require(len(json.loads(box.control("ps --json")[1])) == 3, "a program was ended")


def page(pictures):
    def test(box, build):
        need(build, "chromium", "chromedriver")
        box.start_daemon()

        def say(line):
            done = subprocess.run([box.resolve("openmps-control"), *line.split()], env=box.service_env(), text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=CLIENT_LIMIT_S)
            require(done.returncode == 0, f"{line}: {done.stdout}")

        say("server create main")
        say("namespace create web --server=main --active-thread-percentage=25 --pinned-memory-limit=0=1G")
        token = box.root / "token"
        token.write_text(TOKEN + "\n", encoding="utf-8")
        token.chmod(0o644)
        refused = box.start(["openmps-exporter", "--listen", "127.0.0.1:0", "--token-file", str(token)])
        _, err = refused.communicate(timeout=CLIENT_LIMIT_S)
        require(refused.returncode == 1 and "chmod 600" in err, f"a token that others can read: {refused.returncode} {err}")
        token.chmod(0o600)
        local = box.root / "exporter.sock"
        exporter = Exporter(box, "--token-file", str(token), "--unix", str(local), "--interval", "0.3")
        require(local.is_socket() and local.stat().st_mode & 0o777 == 0o600, oct(local.stat().st_mode))
        door = {"CUDA_MPS_PIPE_DIRECTORY": str(box.pipe / "main" / "web")}

        driver = browser(box.root / "profile")
        try:
            from selenium.webdriver.common.by import By
            from selenium.webdriver.common.keys import Keys

            def all_of(css):
                return driver.find_elements(By.CSS_SELECTOR, css)

            def text_of(css):
                return driver.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", css)

            def row_of(pid):
                return driver.execute_script(
                    "const row = [...document.querySelectorAll('#space .row:not([hidden])')].find(row => row.children[0].textContent === arguments[0]);"
                    "return row && {key: row.dataset.key, state: row.children[3].textContent, bar: row.children[4].firstChild.style.width,"
                    " share: row.children[5].textContent, held: row.children[8].textContent, command: row.children[9].textContent}", str(pid))

            def click(css):
                driver.execute_script("document.querySelector(arguments[0]).click()", css)

            driver.get(f"http://{exporter.address}/")
            eventually(lambda: "live" in text_of("#state"), lambda: f"the page says {text_of('#state')}")
            require("No program uses OpenMPS" in text_of("#count") or text_of("#count") == "", text_of("#count"))
            busy = box.start(["drv_nbody", "512", "100000000"], door)
            eventually(lambda: row_of(busy.pid), "the program does not appear")

            def grows():
                row = row_of(busy.pid)
                return row and row["state"] == "active" and float(row["bar"].rstrip("%")) > 0 and row["share"] != "0 %"
            eventually(grows, lambda: f"its bar does not grow: {row_of(busy.pid)}")
            eventually(lambda: "its stream's budget" in row_of(busy.pid)["held"], lambda: f"it is not held: {row_of(busy.pid)}")
            eventually(lambda: "web" in text_of("[id^=parts-]") and "25 %" in text_of("[id^=parts-]"), "its limit is not shown")
            require("/main/web" in text_of("#spaces"), f"the namespace is not listed: {text_of('#spaces')}")

            # A name is text, whatever is in it.
            nasty = box.start(["drv_client_worker", "1", "3", "hold", NASTY], stdin=subprocess.PIPE)
            ready(nasty)
            plain = box.start(["drv_client_worker", "2", "3", "hold"], stdin=subprocess.PIPE)
            ready(plain)
            eventually(lambda: row_of(nasty.pid) and row_of(plain.pid), "the others do not appear")
            require(NASTY in row_of(nasty.pid)["command"] and driver.title == "OpenMPS" and not all_of("img"), row_of(nasty.pid))
            server, client = map(int, row_of(busy.pid)["key"].split("/"))
            refusals(box, exporter, server, client)

            # The filter, and both languages.
            driver.find_element(By.ID, "filter").send_keys("nbody")
            eventually(lambda: row_of(busy.pid) and not row_of(plain.pid), "the filter")
            driver.find_element(By.ID, "filter").send_keys(Keys.CONTROL, "a", Keys.DELETE)
            eventually(lambda: row_of(plain.pid), "no filter again")
            if pictures:
                driver.save_screenshot(str(pictures / "page-en.png"))
            click("#language")
            eventually(lambda: "程序" in text_of("#programs-part h2") and "实时" in text_of("#state"), "Chinese")
            if pictures:
                driver.save_screenshot(str(pictures / "page-zh.png"))
            click("#language")

            # One program: what it is at, advice; its limit changes, and it ends.
            # With the mouse, while the page is renewed several times a second.
            driver.find_element(By.CSS_SELECTOR, f"#space .row[data-key='{server}/{client}']").click()
            eventually(lambda: "executor" in text_of("#d-inspect") and "Active thread percentage" in text_of("#d-advise"),
                       lambda: text_of("#detail"))
            click("#terminate")
            click("#yes")
            eventually(lambda: "token" in text_of("#outcome"), lambda: f"without the token: {text_of('#outcome')}")
            require(busy.poll() is None, "it was ended without the token")
            driver.execute_script("token = arguments[0]", TOKEN)
            driver.execute_script("const field = document.querySelector('#detail input'); field.value = 12; field.nextSibling.click()")
            eventually(lambda: "Done" in text_of("#outcome"), lambda: text_of("#outcome"))
            require(any(one["id"] == client and one["active_thread_percentage"] == 12 for one in json.loads(box.control("ps --json")[1])
                        if one["server"] == server), "the limit has not changed")
            if pictures:
                driver.save_screenshot(str(pictures / "page-program.png"))
            click("#terminate")
            click("#yes")
            out, err = busy.communicate(timeout=CLIENT_LIMIT_S)
            require(busy.returncode == 1 and "CUDA_ERROR_MPS_CLIENT_TERMINATED" in out + err, f"{busy.returncode} {out}{err}")
            eventually(lambda: row_of(busy.pid) is None and all_of("[data-event=terminated]"), "its end is not shown")

            # Over the Unix socket no token is needed.
            key = row_of(plain.pid)["key"].split("/")
            status, answer = exporter.act({"action": "terminate", "server": int(key[0]), "client": int(key[1])}, {}, local)
            require(status == 200 and answer["ok"], f"over the Unix socket: {status} {answer}")
            plain.communicate("go\n", timeout=CLIENT_LIMIT_S)
            nasty.communicate("go\n", timeout=CLIENT_LIMIT_S)

            box.quit()
            eventually(lambda: "no daemon" in text_of("#state"), lambda: text_of("#state"))
            urls = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
            urls = {message["params"]["request"]["url"] for message in urls if message["method"] == "Network.requestWillBeSent"}
            # chrome: is the browser's own first tab.
            outside = [url for url in urls if not url.startswith((f"http://{exporter.address}/", "data:", "chrome:"))]
            require(urls and not outside, f"requests to elsewhere: {outside}")
            wrong = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE" and "403" not in entry["message"]]
            require(not wrong, f"the browser's console: {wrong}")
        finally:
            driver.quit()
        status, headers, _ = exporter.request("GET", "/")
        require(status == 200 and headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-"), headers)
        exporter.stop()
        require(not local.exists(), "the socket is left")
    return test


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    return run_test(page(arguments.pictures), arguments)


if __name__ == "__main__":
    sys.exit(main())
