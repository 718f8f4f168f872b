"""Headers that a run adds to its requests, and the credentials in them, go to its own target and to no other."""

import json

from tests.issues import conftest as site

SECRET = "tok-0123456789abcdef"
SPEND = (429, {"error": {"message": "No credit", "type": "insufficient_quota", "code": "insufficient_quota"}})


def test_a_fallback_of_another_origin_gets_neither_headers_nor_query(batch, server, monkeypatch):
    monkeypatch.setenv("TEAM_TOKEN", SECRET)
    heads = []
    plain = site._Handler.do_POST

    def noted(self):
        heads.append((self.headers["Host"].partition(":")[0], self.headers["X-Team"], self.headers["X-Team-Token"]))
        plain(self)

    monkeypatch.setattr(site._Handler, "do_POST", noted)
    server.plan = lambda n: SPEND if server.calls[n - 1][1]["model"] == "m" else (200, {"ok": True})
    rows = [json.dumps({"custom_id": f"row-{at}", "body": {"model": "m"}}) + "\n" for at in range(3)]
    batch.rows.write_text("".join(rows))
    added = ("--header", "X-Team: red", "--header", "X-Team-Token: env:TEAM_TOKEN", "--query", "api-version=1")
    other = f"to={server.url.replace('127.0.0.1', 'localhost')},model=other,on=spend"
    ended = json.loads(batch.run("--json", "--workers", "1", *added, "--fallback", other).out.splitlines()[-1])
    assert (ended["exit_code"], ended["done"]) == (0, 3)
    assert set(heads) == {("127.0.0.1", "red", SECRET), ("localhost", None, None)}
    assert {(body["model"], "api-version" in path) for path, body in server.calls} == {("m", True), ("other", False)}
    assert all(SECRET.encode() not in one.read_bytes() for one in batch.folder.iterdir() if one.is_file())
