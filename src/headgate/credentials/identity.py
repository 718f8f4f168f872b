"""Kept for imports of before: it is ``headgate.identity`` now."""

from ..identity import (
    OWNER_ONLY as OWNER_ONLY,
)
from ..identity import (
    Identities as Identities,
)
from ..identity import (
    close_to_others as close_to_others,
)
from ..identity import (
    make_folder_for as make_folder_for,
)
from ..identity import (
    state_folder as state_folder,
)
