-- How a coordinator is written down: plain lists, which are short and quickly packed. Comes first in every script.

-- A member:
local SEEN, NUMBER, GRANTED_TO, GRANTED, FIRST, ERA, PROBE = 1, 2, 3, 4, 5, 6, 7
local FLYING, GONE, ASKED, SPAN, HUNGRY_AT, SOLO = 8, 9, 10, 11, 12, 13

-- A known limit, and an entry of what was spent under it:
local NAME, AMOUNT, WINDOW, BURST, LEVEL, FILLED, SPENT = 1, 2, 3, 4, 5, 6, 7
local BEGAN, LAST, SUM = 1, 2, 3
