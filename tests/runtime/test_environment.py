"""Settings of servers are checked before any call, and a file `.env` adds to the environment."""

import os
import subprocess
import sys

import pytest

from proofmill.runtime import environment
from proofmill.schema.errors import SettingError


@pytest.fixture
def dotenv(tmp_path, monkeypatch):
    """Return a function that reads a `.env` with a text; the environment is restored afterwards."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop("PROOFMILL_DATA", None)

    def read(text):
        (tmp_path / ".env").write_bytes(text if isinstance(text, bytes) else text.encode())
        environment.read_file(tmp_path)

    return read


def test_file_adds_what_the_environment_lacks(dotenv):
    """Comments, quotes, `export` and other variables are read as usual; what is set already stays, also when empty."""
    os.environ.update(PROOFMILL_A_URL="http://set/v1", PROOFMILL_A_KEY="")
    dotenv(
        "\ufeffPROOFMILL_C_URL=http://file/v1\n# where\nexport PROOFMILL_B_URL='http://file/v1' # here\nPROOFMILL_A_URL=http://file/v1\nPROOFMILL_A_KEY=sk-1\n\n"
        'FOLDER=/data\nPROOFMILL_DATA="${FOLDER}/real"\n'
    )
    assert environment.address("api/a") == "http://set/v1" and os.environ["PROOFMILL_A_KEY"] == ""
    assert environment.address("api/c") == "http://file/v1"
    assert environment.address("api/b") == "http://file/v1"
    assert os.environ["PROOFMILL_DATA"] == "/data/real"


def test_no_file_and_a_folder_of_that_name_are_no_mistakes(tmp_path):
    """Some call a folder of Python's `.env`."""
    environment.read_file(tmp_path)
    (tmp_path / ".env").mkdir()
    environment.read_file(tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("A=1\nsk-secret\n", 2),
        ("A=1\n\n\nPROOFMILL_B_KEY: sk-secret\n", 4),
        ("PROOFMILL_B_KEY='sk-secret\nB=2\n", 1),
        ("=sk-secret\n", 1),
    ],
)
def test_broken_line_is_named_and_not_shown(dotenv, text, line):
    """The file and the line are named; the line may hold a key and is not shown, and no variable is set."""
    before = dict(os.environ)
    with pytest.raises(SettingError, match=rf"\.env:{line}: is not NAME=value .*; expected .*Fix it") as refused:
        dotenv(text)
    assert "secret" not in str(refused.value) and dict(os.environ) == before


def test_file_that_is_no_text_is_refused(dotenv):
    """Bytes of another encoding are no variables."""
    with pytest.raises(SettingError, match=r"\.env: is not UTF-8; expected"):
        dotenv(b"A=\xff\xfe\n")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("htp://127.0.0.1/v1", r"begins with htp://"),
        ("htp:/127.0.0.1/v1", r"no https:// or http://"),
        ("127.0.0.1:8000/v1", r"no https:// or http://"),
        ("", "empty"),
        ("http://:80/v1", "host or its port"),
        ("http://host:port/v1", "host or its port"),
        ("http://host:99999/v1", "host or its port"),
        ("http://127.0.0.1:8101", "no path"),
        ("https://host", "no path"),
    ],
)
def test_malformed_address_is_refused_with_what_is_expected(monkeypatch, url, found):
    """An invalid address is found without the network."""
    monkeypatch.setenv("PROOFMILL_FAR_URL", url)
    with pytest.raises(
        SettingError, match=rf"^PROOFMILL_FAR_URL: is not the address of a server \(.*{found}.*https://host/v1"
    ):
        environment.address("api/far")


def test_address_with_a_password_is_refused_without_showing_it(monkeypatch):
    """A password belongs into the variable of the key."""
    monkeypatch.setenv("PROOFMILL_FAR_URL", "https://me:secret@host/v1")
    with pytest.raises(SettingError, match="PROOFMILL_FAR_KEY") as refused:
        environment.address("api/far")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "variable"),
    [("url", "PROOFMILL_MY_JUDGE_V1_5_URL="), ("base-url", "PROOFMILL_MY_JUDGE_V1_5_URL="),
     ("api-key", "PROOFMILL_MY_JUDGE_V1_5_KEY="), ("key", "PROOFMILL_MY_JUDGE_V1_5_KEY="),
     ("rpm", "PROOFMILL_MY_JUDGE_V1_5_RPM="), ("timeout", "PROOFMILL_CALL_TIMEOUT=")],
)  # fmt: skip
def test_what_belongs_into_the_environment_is_answered_with_its_variable(key, variable):
    """An address or a key in an entry is refused, with the variable to set instead."""
    assert environment.meant_by("api/my-judge-v1.5", key).startswith(variable)
    assert environment.meant_by("api/x", "temperature") is None


@pytest.mark.parametrize("value", ["0", "-1", "nan", "fast"])
def test_seconds_that_are_none_are_refused(monkeypatch, value):
    """A limit is a positive number."""
    monkeypatch.setenv("PROOFMILL_CALL_TIMEOUT", value)
    with pytest.raises(SettingError, match=r"PROOFMILL_CALL_TIMEOUT=.*positive number"):
        environment.seconds("PROOFMILL_CALL_TIMEOUT", 600)


def test_numbers_of_shards_are_by_kind_or_by_artifact(monkeypatch):
    """Words of the variable, in any number; unset, nothing has shards."""
    assert environment.shards(["grades", "responses"]) == {}
    monkeypatch.setenv("PROOFMILL_SHARDS", " grades=4  responses/big=16 ")
    assert environment.shards(["grades", "responses"]) == {"grades": 4, "responses/big": 16}


@pytest.mark.parametrize("word", ["grades", "grades=0", "grades=-1", "sft/cold=2", "grades/cold=x", "=2", "grades=1.5"])
def test_word_that_is_no_number_of_shards_is_refused(monkeypatch, word):
    """The message has the word, an example, and the kinds that have shards."""
    monkeypatch.setenv("PROOFMILL_SHARDS", f"grades=2 {word}")
    with pytest.raises(
        SettingError, match=rf"^PROOFMILL_SHARDS: has the word `{word}`; .* of the kinds grades, labels"
    ):
        environment.shards(["grades", "labels"])


def test_service_is_no_address(monkeypatch):
    """`service` instead of an address means that the server is looked up."""
    monkeypatch.setenv("PROOFMILL_JUDGE_URL", "service")
    assert environment.is_service("api/judge") and not environment.is_service("api/other")


# Allocates 256 MiB five times, and prints the page faults of the last three and the growth of the heap in MiB.
TOUCH = """
import resource, torch
def heap():
    return int(open("/proc/self/statm").read().split()[1]) / 256
before = heap()
for _ in range(2):
    torch.ones(2**26)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    torch.ones(2**26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults, heap() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc's tunables are glibc's")
def test_processes_use_freed_memory_again(monkeypatch):
    """A freed tensor's pages become the next tensor's; without holes, the heap has room for two."""
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)

    def touch():
        done = subprocess.run([sys.executable, "-c", TOUCH], capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    assert touch()[0] >= 3 * 128  # even in pages of 2 MiB
    environment.keep_freed_memory()
    faults, grown = touch()
    assert faults < 128 and grown < 600


@pytest.mark.parametrize("variable", ["GLIBC_TUNABLES", "MALLOC_ARENA_MAX"])
def test_variables_of_malloc_that_are_set_stay(monkeypatch, variable):
    """A user's settings of malloc are kept, whichever variable has them."""
    monkeypatch.setattr(os, "environ", {variable: "1"})
    environment.keep_freed_memory()
    assert os.environ == {variable: "1"}
