"""Requests to the page, as functions that send them."""


def get(path, *fields, host=None, method="GET", body=b""):
    return lambda page: page.ask(f"{method} {path}", *(one.format(p=page) for one in fields), host=host, body=body)


def with_token(path, *fields, **rest):
    return get(path, "{p.bearer}", *fields, **rest)


def raw(text, *, ends=True):
    """The bytes as they are, with the page's own host, token and cookie put in."""

    def send(page):
        known = {b"HOST": page.host, b"TOKEN": page.token, b"COOKIE": page.cookie}
        made = text
        for name, value in known.items():
            made = made.replace(b"<" + name + b">", value.encode())
        return page.send(made, ends=ends)

    return send
