"""Vendors, stores and controllers of other packages: found by entry points, loaded only when they are named.

The example package is put on the path with the metadata that pip would write; ``make release-check`` installs it.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headgate import AdaptiveRateLimiter, ConfigError, RateLimitConfig
from headgate.batch.endpoints import endpoint_of
from headgate.lab.experiment import strategies_of
from headgate.plugins import CONTROLLERS, PluginError, has_plugin, load_plugin
from headgate.stores import open_store
from headgate.wire import dialects as known
from headgate.wire import read
from headgate.wire.headers import meaning

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"
MODULES = ("vendor", "store", "controller")


def install(folder: Path, name: str, points: dict[str, dict[str, str]]) -> None:
    information = folder / f"{name}-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in each.items()) for group, each in points.items()]
    (information / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The example package as if it were installed; what it registers is undone at the end."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(tmp_path, "headgate_example", project["entry-points"])
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    monkeypatch.syspath_prepend(str(tmp_path))
    tables = (known.BY_NAME, known.BY_HOST, known.MARKS, known._OWNER_OF_MARK)
    before = [set(table) for table in tables]
    yield
    for table, names in zip(tables, before, strict=True):
        for name in set(table) - names:
            del table[name]
    meaning.cache_clear()
    for name in [name for name in sys.modules if name.startswith("headgate_example")]:
        del sys.modules[name]


@pytest.mark.usefixtures("example")
class TestExample:
    def test_nothing_is_imported_before_it_is_named(self):
        RateLimitConfig()
        open_store("memory")
        endpoint_of("openai")
        assert has_plugin(CONTROLLERS, "example")
        assert not [name for name in sys.modules if name.startswith("headgate_example")]

    def test_a_vendor_is_a_target_and_its_headers_are_understood(self):
        headers = {"X-Example-Left": "0", "X-Example-Next": "12"}
        assert not read(429, headers, wall=0.0).limits
        address = endpoint_of("example")
        assert (address.base_url, address.key_variable) == ("https://api.example.com/v1", "EXAMPLE_API_KEY")
        signal = read(429, headers, wall=0.0)
        assert (signal.dialect, signal.limits[0].remaining, signal.limits[0].reset) == ("example", 0, 12.0)
        assert endpoint_of("example") is address

    def test_a_store_is_opened_by_its_scheme(self):
        store = open_store("example://team")
        assert open_store("example://team") is store
        assert open_store("example://other") is not store
        limiter = AdaptiveRateLimiter(store="example://team")
        with limiter.permit("api.example.com") as permit:
            permit.report(status_code=200)
        limiter.close()

    def test_a_controller_is_a_strategy(self):
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="example", initial_rps=8.0))
        with limiter.permit("api.example.com") as permit:
            permit.report(status_code=429)
        assert limiter.snapshot().keys[0].rate == 4.0
        assert strategies_of("example+aimd") == ["example", "aimd"]

    @pytest.mark.no_cover
    def test_the_lab_runs_it(self, headgate_command):
        said = headgate_command("simulate", "tb50", "--strategy", "example", "--seeds", "1", "--json")
        assert '"example"' in said


@pytest.fixture
def headgate_command(capfd):
    from headgate.cli import execute

    def call(*words: str) -> str:
        assert execute(list(words)) == 0
        return capfd.readouterr().out

    return call


class TestMistakes:
    def test_names_of_headgate_are_never_taken_over(self, tmp_path, monkeypatch):
        install(tmp_path, "greedy", {CONTROLLERS: {"aimd": "nowhere:x"}, "headgate.vendors": {"openai": "nowhere:x"}})
        monkeypatch.syspath_prepend(str(tmp_path))
        AdaptiveRateLimiter(RateLimitConfig(strategy="aimd")).close()
        assert endpoint_of("openai").base_url == "https://api.openai.com/v1"

    def test_a_plugin_that_cannot_be_loaded_is_named(self, tmp_path, monkeypatch):
        points = {CONTROLLERS: {"torn": "nowhere_at_all:x"}, "headgate.stores": {"torn": "nowhere_at_all:x"}}
        install(tmp_path, "torn-package", {**points, "headgate.vendors": {"torn": "nowhere_at_all:x"}})
        monkeypatch.syspath_prepend(str(tmp_path))
        why = "'torn' of torn-package cannot be loaded (ModuleNotFoundError)"
        with pytest.raises(PluginError) as told:
            load_plugin(CONTROLLERS, "torn")
        assert str(told.value) == why
        for make in (
            lambda: endpoint_of("torn"),
            lambda: open_store("torn://x"),
            lambda: AdaptiveRateLimiter(RateLimitConfig(strategy="torn")).acquire("api.example.com"),
        ):
            with pytest.raises(ConfigError, match="cannot be loaded"):
                make()

    def test_a_name_that_two_packages_offer_is_not_guessed(self, tmp_path, monkeypatch):
        install(tmp_path, "one", {CONTROLLERS: {"same": "one:x"}})
        install(tmp_path, "two", {CONTROLLERS: {"same": "two:x"}})
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(PluginError, match="several packages"):
            load_plugin(CONTROLLERS, "same")

    def test_a_vendor_must_be_one(self, tmp_path, monkeypatch):
        install(tmp_path, "odd", {"headgate.vendors": {"odd": "os:path"}})
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(ConfigError, match=r"is not a headgate\.batch\.endpoints\.Vendor"):
            endpoint_of("odd")

    def test_a_dialect_cannot_take_a_name(self):
        from headgate.wire.dialect import Dialect

        with pytest.raises(ValueError, match="already"):
            known.register(Dialect(name="openai", title="Not OpenAI"))


def test_metadata_is_not_read_unless_a_name_is_unknown():
    code = (
        "import sys; from headgate import AdaptiveRateLimiter; AdaptiveRateLimiter(store='memory'); "
        "sys.exit('importlib.metadata' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0
