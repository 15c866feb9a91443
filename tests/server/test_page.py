#!/usr/bin/env python3
"""The page that `ruvllm serve` shows a browser: its files, their headers, nothing from elsewhere.
Prints TAP."""
import re

from serving import Server, finish, verdict, without_encoder

without_encoder()
FILES = {"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8",
         "/page.js": "text/javascript; charset=utf-8"}


def files(s, when):
    for path, kind in FILES.items():
        status, headers, body = s.ask("GET", path)
        with open("src/server/page/" + (path[1:] or "index.html"), "rb") as f:
            verdict(f"{path} {when}", status == 200 and headers["content-type"] == kind and
                    body == f.read(), (status, headers.items()))


def policy(s):
    for path in FILES:
        _, headers, body = s.ask("GET", path)
        rules = dict(r.strip().split(" ", 1) for r in headers["content-security-policy"].split(";"))
        verdict(f"{path} forbids what it does not need",
                all(rules[r] == "'none'" for r in ("default-src", "base-uri", "form-action",
                                                   "frame-ancestors")) and
                all(rules[r] == "'self'" for r in ("script-src", "style-src", "connect-src")) and
                headers["x-content-type-options"] == "nosniff", headers.items())
        text = body.decode()
        verdict(f"{path} names no other server",
                not re.search(r"(?:https?:)?//[a-z0-9]|@import|url\(", re.sub(
                    r"(?m)(^|\s)// .*|http://www\.w3\.org/2000/svg", "", text)), path)
        verdict(f"{path} has no code in its text, and makes none of text",
                not re.search(r"<script(?! src)|<style|\son\w+=|\sstyle=|innerHTML|outerHTML|"
                              r"insertAdjacentHTML|document\.write|\beval\(|Function\(", text),
                path)


def refused(s):
    status, headers, _ = s.post("/", {})
    verdict("the page can only be read", status == 405 and headers["allow"] == "GET", status)
    verdict("it has one address", s.ask("GET", "/v1/")[0] == 404)
    status, headers, body = s.ask("HEAD", "/")
    verdict("HEAD has its length alone", status == 200 and not body and
            int(headers["content-length"]) > 0)
    verdict("strangers' names for this machine are refused",
            s.ask("GET", "/", headers={"Host": "evil.example"})[0] == 403)


with Server(ready=False) as server:
    files(server, "before or after the model is ready")
    policy(server)
    refused(server)
with Server("--api-key", "sesame") as server:
    files(server, "needs no key")
    verdict("but what it asks for does", server.ask("GET", "/v1/learning")[0] == 401)
finish()
