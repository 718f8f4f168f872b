"""What listeners hear of rows, and that those who want to hear of few miss none without knowing."""

from collections import Counter

from headgate.batch.item import Item
from headgate.batch.ledger import Claim, Row
from headgate.events import BatchEvent, EventDispatcher
from headgate.lab.virtual_time import VirtualClock


class Sampling:
    """Wants one event of each kind in every second, and counts the others."""

    def __init__(self, clock):
        self._clock, self.told, self.lost, self._heard_at = clock, [], Counter(), {}

    def __call__(self, event):
        self.told.append(event.kind)
        self._heard_at[event.kind] = int(self._clock.now())

    def wants(self, kind):
        return self._heard_at.get(kind) != int(self._clock.now())

    def missed(self, kind, count):
        self.told.append(count)
        self.lost[kind] += count


def test_events_without_a_listener_are_not_made_but_counted(play, http_error):
    async def scenario(lab):
        listener = Sampling(lab.clock)
        api = lab.api(lambda item, nth: http_error(400) if item % 4 == 3 else item, takes=0.3)
        report = await lab.runner(api, workers=5, on_event=listener).run(range(100))
        assert (report.done, report.dead) == (75, 25)
        told = Counter(one for one in listener.told if isinstance(one, str))
        assert told["item_done"] == told["item_dead"] == 6
        assert told + listener.lost == Counter(item_done=75, item_dead=25)

    play(scenario)


class TestALot:
    def setup_method(self):
        self.clock = VirtualClock()
        self.listener = self.first = Sampling(self.clock)
        self.events = EventDispatcher(BatchEvent, self.clock, lambda: self.listener)

    def end(self, *kinds):
        for index, kind in enumerate(kinds):
            item = Item(Row(index, str(index), bytes(16)), Claim(index, 1), None, 0.0)
            self.events.dispatch_in_batch(kind, "api", "", "", item.event_fields)

    def test_a_no_is_asked_for_once_and_counted_at_its_end(self):
        self.end(*["item_done"] * 10)
        assert self.first.told == ["item_done", 1]
        self.events.end_batch()
        assert self.first.told == ["item_done", 1, 8]

    def test_what_was_not_told_comes_before_what_is(self):
        self.end(*["item_done"] * 10, "item_dead")
        assert self.first.told == ["item_done", 1, 8, "item_dead"]

    def test_the_next_may_be_wanted_again(self):
        self.end(*["item_done"] * 10)
        self.events.end_batch()
        self.clock.advance(1.0)
        self.end("item_done")
        assert self.first.told == ["item_done", 1, 8, "item_done"]

    def test_each_listener_declines_for_itself(self):
        self.end(*["item_done"] * 10)
        self.listener = other = Sampling(self.clock)
        self.end("item_done")
        assert (self.first.told, other.told) == (["item_done", 1, 8], ["item_done"])

    def test_who_has_left_is_still_told_what_he_missed(self):
        self.end(*["item_done"] * 10)
        self.listener = None
        self.end("item_done")
        self.events.end_batch()
        assert self.first.lost["item_done"] == 9
