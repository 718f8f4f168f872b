"""Stores by their names."""

import pytest

from headgate import stores
from headgate.distributed.backends.memory import MemoryStore
from headgate.distributed.backends.redis import RedisStore
from headgate.distributed.backends.sqlite import SqliteStore
from headgate.distributed.store import QuotaView
from headgate.errors import ConfigError
from headgate.stores import open_store


class TestOpening:
    def test_each_name_opens_its_kind(self):
        assert isinstance(open_store("memory"), MemoryStore)
        assert isinstance(open_store("machine"), SqliteStore)
        assert isinstance(open_store("redis://127.0.0.1:1"), RedisStore)

    def test_a_store_stays_what_it_is(self):
        store = MemoryStore()
        assert open_store(store) is store

    def test_the_names_of_earlier_versions_still_work_and_warn(self):
        store = MemoryStore()
        with pytest.warns(DeprecationWarning, match="use sync"):
            assert store.visit([]) == []
        with pytest.warns(DeprecationWarning, match="use snapshot"):
            assert store.look() == []
        with pytest.warns(DeprecationWarning, match="use QuotaView"):
            assert stores.DeskView is QuotaView

    def test_a_store_of_the_users_may_have_the_former_names(self):
        class Former:
            where = "mine"

            def visit(self, visits):
                return [*visits]

            def look(self):
                return ["one"]

            def close(self):
                self.closed = True

        mine = Former()
        with pytest.warns(DeprecationWarning, match="use sync"):
            store = open_store(mine)
        store.close()
        assert (store.where, store.sync([1]), store.snapshot(), mine.closed) == ("mine", [1], ["one"], True)

    def test_the_machine_store_lies_in_the_state_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))
        assert open_store("machine").where == f"machine ({tmp_path / 'shared.db'})"

    @pytest.mark.parametrize("where", ["", "machin", "http://x", "memory://", "user:hunter2@host", "sk-hunter2://x", 7])
    def test_anything_else_is_refused_without_repeating_what_may_be_secret(self, where):
        with pytest.raises(ConfigError, match="'memory', 'machine', 'ray', 'redis://") as caught:
            open_store(where)
        assert "hunter2" not in str(caught.value)
