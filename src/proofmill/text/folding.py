"""The folded view of a text: its visible characters, with letters of any style or look-alike script as Latin ones.

`＜／ｐｒｏｏｆ＞`, `</𝐩𝐫𝐨𝐨𝐟>`, a `</рrооf>` with Cyrillic letters and a `</proof>` with a zero-width joiner inside all become
`</proof>`. Each character is folded separately, so a position in the view maps to a position in the text. Letters that
look like Latin ones are folded also if compatibility decomposition keeps them: those of Cyrillic, Greek and Armenian,
small capitals, and capitals on dark discs and squares. All other letters of other scripts stay.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable

_SPACES = "\t\n\v\f\r"
_FILLERS = "\u115f\u1160"  # Hangul letters without a glyph; the only invisible ones outside categories C and M
# A Latin letter, and its look-alikes (after the confusables of Unicode's UTS 39).
_ALIKE = """aаαɑᴀ bвьʙ cсᴄ dԁᴅ eеεҽᴇ fꜰ gɡɢ hһнհʜ iіιıɪ jјᴊ kкκᴋ lӏʟ mмᴍ nпηոɴ oоοσօᴏ pрρᴘ qԛ rгʀ sѕꜱ tтτᴛ uυսᴜ vνѵᴠ
wԝωᴡ xхχ yуүγʏ zᴢ AАΑ BВΒ CС EЕΕ HНΗ IІΙ JЈ KКΚ MМΜ NΝ OОΟՕ PРΡ SЅՏ TТΤ VѴ WԜ XХΧ YҮΥ ZΖ"""
_LETTERS = {alike: letters[0] for letters in _ALIKE.split() for alike in letters[1:]} | {
    chr(first + place): chr(ord("A") + place) for first in (0x1F150, 0x1F170, 0x1F1E6) for place in range(26)
}
_ENTITY = re.compile(r"&(?:lt|#(\d{2,7}));")


class _Views(dict[int, str]):
    """The view of each character: its compatibility decomposition without accents, controls and unassigned codes.

    A letter that looks like a Latin one becomes that one.
    """

    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(code))
        self[code] = "".join(_LETTERS.get(part, part) for part in parts if part in _SPACES or not _unseen(part))
        return self[code]


def _unseen(character: str) -> bool:
    return unicodedata.category(character)[0] in "CM" or character in _FILLERS


_VIEWS = _Views()


def fold(text: str) -> str:
    """Return the view of a text; case is kept."""
    return text.translate(_VIEWS)


def escape(text: str, pattern: re.Pattern[str]) -> str:
    """Escape the first character of each match of the pattern in the folded view; keep all others."""
    starts = [match.start() for match in pattern.finditer(fold(text))]
    if not starts:
        return text
    origins = [place for place, character in enumerate(text) for _ in _VIEWS[ord(character)]]
    return escape_at(text, (origins[start] for start in starts))


def escape_at(text: str, places: Iterable[int]) -> str:
    """Write the characters at these ascending places as entities."""
    parts, end = [], 0
    for place in places:
        parts += [text[end:place], "&lt;" if text[place] == "<" else f"&#{ord(text[place])};"]
        end = place + 1
    return "".join([*parts, text[end:]])


def unescape(text: str) -> str:
    """Return the original text: the inverse of `escape`."""
    return _ENTITY.sub(_character, text)


def _character(entity: re.Match[str]) -> str:
    if entity[1] is None:
        return "<"
    return chr(int(entity[1])) if int(entity[1]) <= sys.maxunicode else entity[0]
