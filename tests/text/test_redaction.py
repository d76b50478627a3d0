"""Secrets are removed from texts of any length, in linear time."""

import random
import string
import time

from proofmill.text.redaction import HIDDEN, PART, Redaction, without_users

SECRET = "sk-live-0123456789abcdefghij"


def test_each_part_of_a_secret_is_hidden_wherever_it_stands():
    """Twelve characters of it suffice, at any offset in a run of other characters."""
    hide, rng = Redaction([SECRET]), random.Random(0)
    for start in range(len(SECRET) - PART + 1):
        for before in range(20):
            noise = "".join(rng.choices(string.ascii_letters, k=before))
            text = f"see {noise}{SECRET[start : start + PART]}{noise} there"
            assert hide(text) == f"see {HIDDEN} there"
    assert hide(f"see {SECRET[:11]} there") == f"see {SECRET[:11]} there"


def test_time_for_a_text_without_a_blank_is_linear():
    """Ten times as many characters cost about ten times as much, not a hundred times: each the best of five."""
    hide, rng = Redaction([SECRET, "another-secret-of-forty-characters-000000"]), random.Random(0)
    text = "".join(rng.choices(string.ascii_letters + string.digits, k=1_000_000))

    def seconds(what):
        start = time.process_time()
        assert hide(what) == what
        return time.process_time() - start

    assert min(seconds(text) for _ in range(5)) < 40 * min(seconds(text[:100_000]) for _ in range(5))
    assert hide(text + SECRET[:20]) == HIDDEN


def test_users_of_addresses_are_taken_out():
    """A proxy's or redirect's password is removed, in any scheme; an address without one, and an e-mail, stay."""
    text = "via http://me:pa@ss@proxy:8080/x, socks5://u@h, https://a.b/c@d and me@a.b"
    assert without_users(text) == f"via http://{HIDDEN}@proxy:8080/x, socks5://{HIDDEN}@h, https://a.b/c@d and me@a.b"
