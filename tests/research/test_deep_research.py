"""Who is asked, who is left out, and what is left when some fail."""

import asyncio
import gc

import pytest

from headgate.errors import CircuitOpenError, ConfigError
from headgate.providers import PROVIDERS, CrossrefProvider, Page, SearchProvider, SearchResult
from headgate.research import DeepResearch

ALL = tuple(PROVIDERS)
WEB = ("tavily", "google", "perplexity")


def outcomes(result):
    return {report.provider: report.outcome for report in result.providers}


def report_of(result, name):
    return next(report for report in result.providers if report.provider == name)


def test_six_providers_find_each_work_once(run):
    async def scenario(world):
        return await world.research(*ALL).gather("water gates", max_results=8)

    result = run(scenario)
    assert outcomes(result) == dict.fromkeys(ALL, "complete")
    assert result.is_complete
    assert [finding.url for finding in result.findings] == [f"https://example.org/water-gates/{n}" for n in range(1, 9)]
    searched = [name for name in ALL if name != "tavily_extract"]
    assert all(finding.places == dict.fromkeys(searched, place) for place, finding in enumerate(result.findings, 1))
    assert all(finding.content for finding in result.findings)


def test_the_order_does_not_depend_on_which_answers_first(run):
    async def scenario(world):
        found = []
        for slow in ("tavily", "semantic_scholar", "crossref"):
            world.fault(slow, delay=0.05)
            found.append((await world.research(*ALL).gather("gates", max_results=20)).findings)
        return found

    first, second, third = run(scenario)
    assert first == second == third


def test_an_open_circuit_is_skipped_and_the_others_answer(run):
    async def scenario(world):
        await world.open_circuit("tavily")
        result = await world.research(*WEB).gather("gates")
        return result, world.calls("tavily")

    result, calls = run(scenario)
    assert calls == 0
    assert outcomes(result) == {"tavily": "skipped", "google": "complete", "perplexity": "complete"}
    assert result.metadata["breaker_states"] == {"tavily": "open", "google": "closed", "perplexity": "closed"}
    assert report_of(result, "tavily").error_type == "circuit_open"
    assert 20 < report_of(result, "tavily").retry_after <= 30
    assert len(result.findings) == 10
    assert not result.is_complete


def test_a_half_open_circuit_is_probed_and_closes(run):
    async def scenario(world):
        await world.half_open_circuit("tavily")
        result = await world.research(*WEB).gather("gates")
        return result, world.calls("tavily")

    result, calls = run(scenario)
    assert calls == 1
    assert result.is_complete
    assert result.breaker_states["tavily"] == "closed"


def test_of_several_gatherings_one_probes_a_half_open_circuit(run):
    async def scenario(world):
        await world.half_open_circuit("tavily")
        world.fault("tavily", delay=0.1)  # so that all are there before the one is answered
        research = world.research(*WEB)
        results = await asyncio.gather(*(research.gather("gates") for _ in range(6)))
        return sorted(outcomes(result)["tavily"] for result in results), world.calls("tavily")

    assert run(scenario) == (["complete"] + ["skipped"] * 5, 1)


def test_when_every_circuit_is_open_it_is_told_and_raised(run, caplog):
    async def scenario(world):
        for name in WEB:
            await world.open_circuit(name)
        world.events.clear()
        with pytest.raises(CircuitOpenError) as refusal:
            await world.research(*WEB).gather("gates")
        assert 20 < refusal.value.retry_after <= 30
        return str(refusal.value), world.events, [world.calls(name) for name in WEB]

    told, events, calls = run(scenario)
    assert told.startswith("tavily, google, perplexity: every circuit is open, ")
    assert calls == [0, 0, 0]
    assert [(event.event_type, event.provider, event.breaker_state) for event in events] == [
        ("all_providers_circuit_open", "tavily,google,perplexity", "open")
    ]
    assert "every circuit is open: tavily,google,perplexity" in caplog.text


def test_when_the_last_circuit_opens_midway_it_is_told_and_what_came_before_stays(run):
    async def scenario(world):
        def fail_from_now_on(report):
            if report.pages == 1:
                world.fault("google", times=99, trouble="server_error")

        google = world.research("google", on_progress=fail_from_now_on)
        kept = [await google.gather("gates", max_results=30) for _ in range(2)]
        return kept, [event.event_type for event in world.events]

    (first, second), events = run(scenario)
    assert (len(first.findings), outcomes(first)) == (10, {"google": "partial"})
    assert outcomes(second) == {"google": "failed"}
    assert second.breaker_states == {"google": "open"}
    assert events.count("all_providers_circuit_open") == 1


def test_with_the_kill_switch_no_circuit_leaves_anybody_out(run, monkeypatch):
    async def scenario(world):
        await world.open_circuit("tavily")
        monkeypatch.setenv("HEADGATE_ENHANCED_RESILIENCE_TAVILY", "false")
        return outcomes(await world.research(*WEB).gather("gates"))

    assert run(scenario) == dict.fromkeys(WEB, "complete")


def test_what_came_before_a_failure_stays(run):
    async def scenario(world):
        def fail_after_a_page(report):
            if report.provider == "google" and report.pages == 1:
                world.fault("google", times=3, trouble="server_error")

        return await world.research("google", "tavily", on_progress=fail_after_a_page).gather("gates", max_results=30)

    result = run(scenario)
    assert outcomes(result) == {"google": "partial", "tavily": "complete"}
    google = report_of(result, "google")
    assert (google.found, google.pages, google.kept, google.alone, google.error_type) == (10, 1, 10, 0, "provider")
    assert google.reason == "answered 500 (transient): Internal error encountered."
    assert (len(result.findings), report_of(result, "tavily").alone) == (20, 10)


@pytest.mark.parametrize(
    ("fault", "error_type"),
    [
        ({"trouble": "unauthorized"}, "auth"),
        ({"trouble": "quota"}, "rate_limit"),
        ({"trouble": "server_error", "times": 3}, "provider"),
        ({"drop": "before", "times": 3}, "provider"),
        ({"status": 200, "body": "<html>"}, "provider"),
    ],
    ids=["auth", "quota", "500", "hangs up", "nonsense"],
)
def test_whatever_happens_to_one_the_others_answer(run, fault, error_type):
    async def scenario(world):
        world.fault("tavily", **fault)
        return await world.research(*WEB).gather("gates")

    result = run(scenario)
    assert outcomes(result) == {"tavily": "failed", "google": "complete", "perplexity": "complete"}
    assert report_of(result, "tavily").error_type == error_type
    assert report_of(result, "tavily").reason
    assert len(result.findings) == 10


def test_a_daily_quota_on_one_key_leaves_the_work_to_the_others(run):
    async def scenario(world):
        google = world.provider("google", "key-one", "key-two")
        world.fault("google", trouble="quota", key="key-one")
        research = world.research(google, "tavily", "crossref")
        results = [await research.gather("gates") for _ in range(3)]
        used = [asked.query["key"] for asked in world.server.services["google"].asked]
        return [result.is_complete for result in results], used

    complete, used = run(scenario)
    assert complete == [True, True, True]
    assert used.count("key-one") == 1
    assert used.count("key-two") == 3


def test_when_the_day_of_every_key_is_spent_the_other_providers_go_on(run):
    async def scenario(world):
        research = world.research("tavily", "google")
        google_only = [await research.gather("gates", max_results=5) for _ in range(3)]
        return [outcomes(result)["google"] for result in google_only], google_only[-1]

    async def with_quota(world):
        world.fault("google", times=1, trouble="quota")
        return await scenario(world)

    ends, last = run(with_quota)
    assert ends == ["failed", "failed", "failed"]
    assert report_of(last, "google").error_type == "no_credential"
    assert report_of(last, "google").retry_after > 0
    assert len(last.findings) == 5


def test_a_wait_that_would_not_fit_is_told_with_the_answer_that_asked_for_it(run):
    async def scenario(world):
        world.fault("crossref", trouble="rate_limited", headers={"retry-after": "600"})
        crossref = CrossrefProvider(base_url=world.server.base_url("crossref"), manager=world.manager)
        return report_of(await world.research(crossref).gather("gates"), "crossref")

    report = run(scenario)
    assert report.reason.startswith("answered 429 (rate limited)")
    assert report.error_type == "rate_limit"
    assert 600 <= report.retry_after < 660


def test_the_time_budget_ends_the_slow_and_keeps_the_rest(run):
    async def scenario(world):
        world.fault("tavily", delay=30.0)
        started = asyncio.get_running_loop().time()
        result = await world.research("tavily", "google", time_budget=2.0).gather("gates")
        return result, asyncio.get_running_loop().time() - started, world.manager.get_provider_status("tavily")

    result, took, status = run(scenario)
    assert took >= 2.0
    assert outcomes(result) == {"tavily": "failed", "google": "complete"}
    assert report_of(result, "tavily").error_type == "time_budget"
    assert (status.consecutive_failures, status.in_flight) == (0, 0)
    assert len(result.findings) == 10


def test_all_are_asked_at_once_and_cancelling_ends_every_call(run, recwarn):
    async def scenario(world):
        for name in WEB:
            world.fault(name, delay=30.0)
        research = world.research(*WEB)
        gathering = asyncio.create_task(research.gather("gates"))
        while not all(world.server.services[name].in_flight for name in WEB):
            await asyncio.sleep(0.005)
        gathering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathering
        statuses = [world.manager.get_provider_status(name) for name in WEB]
        return [status.in_flight for status in statuses], (await research.gather("gates")).is_complete

    assert run(scenario) == ([0, 0, 0], True)
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.no_cover
def test_cancelling_at_any_moment_leaks_no_permit_no_probe_and_no_lease(run):
    async def scenario(world):
        await world.half_open_circuit("tavily")
        providers = [world.provider(name) for name in WEB]
        research = world.research(*providers)
        cancelled = 0
        for moments in range(0, 200, 3):
            gathering = asyncio.create_task(research.gather("gates"))
            for _ in range(moments):
                await asyncio.sleep(0)
            gathering.cancel()
            (ended,) = await asyncio.gather(gathering, return_exceptions=True)
            cancelled += isinstance(ended, asyncio.CancelledError)
            assert not any(world.manager.get_provider_status(name).in_flight for name in WEB)
            assert [provider._credentials.get_available_count() for provider in providers] == [1, 1, 1]
        return cancelled, await research.gather("gates")

    cancelled, result = run(scenario)
    assert cancelled > 10
    assert result.is_complete
    assert result.breaker_states == dict.fromkeys(WEB, "closed")


def test_pages_without_a_text_are_read_where_a_reader_is_given(run):
    async def scenario(world):
        result = await world.research("google", "tavily_extract").gather("gates", max_results=25)
        return result, [len(asked.body["urls"]) for asked in world.server.services["tavily_extract"].asked]

    result, asked = run(scenario)
    assert asked == [20, 5]
    assert all(finding.content.startswith("Page") for finding in result.findings)
    assert all(finding.places.keys() == {"google"} for finding in result.findings)
    assert report_of(result, "tavily_extract").kept == 25


def test_a_reader_that_fails_costs_no_finding(run):
    async def scenario(world):
        world.fault("tavily_extract", trouble="unauthorized")
        return await world.research("google", "tavily_extract").gather("gates")

    result = run(scenario)
    assert outcomes(result) == {"google": "complete", "tavily_extract": "failed"}
    assert len(result.findings) == 10


class Broken(SearchProvider):
    name = "broken"
    address = "http://127.0.0.1:9"
    most_results = 5
    needs_key = False

    def ask(self, question):
        raise RuntimeError("a bug, and a secret: hunter2")

    def read(self, answer, question):
        return Page([SearchResult(title="never", url="https://example.org/", provider=self.name)])


def test_a_bug_in_a_provider_is_told_by_its_kind_alone(run, caplog):
    async def scenario(world):
        return await world.research(Broken(manager=world.manager), "google").gather("gates")

    result = run(scenario)
    assert outcomes(result) == {"broken": "failed", "google": "complete"}
    assert report_of(result, "broken").reason == "failed with an internal error (RuntimeError)"
    assert "hunter2" not in caplog.text + repr(result)


def test_progress_is_told_and_a_listener_that_fails_costs_nothing(run, caplog):
    told = []

    def listen(report):
        told.append((report.outcome, report.found))
        raise RuntimeError("deaf")

    async def scenario(world):
        return await world.research("google", on_progress=listen).gather("gates", max_results=15)

    assert run(scenario).is_complete
    assert told == [("asking", 0), ("asking", 10), ("asking", 15), ("complete", 15)]
    assert "a listener failed" in caplog.text


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"providers": []}, "providers="),
        ({"providers": [CrossrefProvider(), CrossrefProvider()]}, "different names"),
        ({"providers": [PROVIDERS["tavily_extract"]("k")]}, "one that searches"),
        ({"providers": [CrossrefProvider()], "time_budget": 0}, "time_budget=0"),
        ({"providers": [CrossrefProvider()], "time_budget": float("nan")}, "time_budget=nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings, word):
    with pytest.raises(ConfigError, match=word):
        DeepResearch(**settings)


@pytest.mark.parametrize(("question", "word"), [(("",), "question"), (("x", 0), "max_results"), (("x", 1001), "1,000")])
def test_a_question_out_of_range_is_refused(question, word):
    with pytest.raises(ConfigError, match=word):
        asyncio.run(DeepResearch([CrossrefProvider()]).gather(*question))
