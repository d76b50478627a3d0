"""Test the check of commit subjects, in small repositories of its own."""

import subprocess

import pytest

import commit_subjects
from commit_subjects import SCRIPT, faults

AUTHOR = [
    "-c",
    "user.name=A",
    "-c",
    "user.email=a@example.org",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "init.defaultBranch=main",
]


class Repository:
    """A repository in a folder; the first commits are from before the check."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet")
        self.commit("History that is not checked.")

    def git(self, *words):
        """Run git and return its output."""
        return subprocess.run(
            ["git", *AUTHOR, *words], cwd=self.folder, capture_output=True, text=True, check=True
        ).stdout

    def commit(self, *subjects):
        """Add an empty commit for each subject."""
        for subject in subjects:
            self.git("commit", "--quiet", "--allow-empty", "--message", subject)

    def add_script(self):
        """Add a file at the script's path."""
        (self.folder / SCRIPT).parent.mkdir()
        (self.folder / SCRIPT).touch()
        self.git("add", SCRIPT)
        self.commit("The check itself.")

    def checked(self, *revisions):
        """Return the subjects that are checked."""
        revisions = list(revisions) or commit_subjects.default_range(self.folder)
        return [subject for _, subject in commit_subjects.commits(revisions, self.folder)]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a repository that has the script since its second commit, without any settings of the user's."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    made = Repository(tmp_path / "repository")
    made.add_script()
    return made


@pytest.mark.parametrize(
    "subject, words",
    [
        ("Fix a race when threads create a service's key", []),
        ("Bump torch to 2.14", []),
        ("fix a race", ["capital letter"]),
        ("Fixed a race", ["base form"]),
        ("A race is fixed", ["base form"]),
        ("Fix a race.", ["period"]),
        ("Fix " + 68 * "x", []),
        ("Fix " + 69 * "x", ["has 73 characters; expected at most 72"]),
        ("A race, " + 65 * "x" + ".", ["base form", "characters", "period"]),
    ],
)
def test_subject_is_imperative_short_and_without_a_period(subject, words):
    """Each fault is reported with what is expected."""
    found = faults(subject, commit_subjects.verbs())
    assert len(found) == len(words) and all(word in fault for word, fault in zip(words, found, strict=True))


def test_history_before_the_check_is_not_checked(repository):
    """Only commits whose parent has the script are checked, at most the last 20 without branch and tag."""
    assert repository.checked() == []
    repository.commit("Add x", "Add y")
    assert repository.checked() == repository.checked("HEAD") == ["Add y", "Add x"]
    repository.commit(*(f"Add {number}" for number in range(25)))
    assert len(repository.checked()) == 20


def test_branch_from_before_the_check_is_not_checked(repository):
    """Neither are merges, so that work that began earlier can be merged."""
    repository.git("checkout", "--quiet", "-b", "earlier", "HEAD~1")
    repository.commit("Work from before.")
    repository.git("checkout", "--quiet", "main")
    repository.commit("Add x")
    repository.git("merge", "--quiet", "--no-ff", "--message", "A merge.", "earlier")
    repository.commit("Add y")
    assert repository.checked() == ["Add y", "Add x"]


def test_commits_since_a_tag_or_the_main_branch_are_checked(repository):
    """A tag of the present commit is no base, and origin/main comes before a tag."""
    repository.commit("Add x")
    repository.git("tag", "v1")
    assert repository.checked() == ["Add x"]
    repository.commit("Add y")
    assert repository.checked() == ["Add y"]
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert repository.checked() == ["Add y"]
    repository.commit("Add z")
    assert repository.checked() == ["Add z"]
    assert repository.checked("v1..HEAD") == ["Add z", "Add y"]


def test_shallow_clone_is_checked_after_its_first_commit(repository, tmp_path):
    """The parent of its first commit is unknown."""
    repository.commit("Add x", "Add y", "Add z")
    repository.git("clone", "--quiet", "--depth=2", f"file://{repository.folder}", str(tmp_path / "shallow"))
    repository.folder = tmp_path / "shallow"
    repository.git("update-ref", "-d", "refs/remotes/origin/main")
    assert repository.checked() == ["Add z"]


def test_faults_are_printed_and_fail(repository, capsys):
    """The exit code is 1 for a fault and for an unknown range, and 0 without a repository."""
    repository.commit("Add x")
    assert commit_subjects.main([], repository.folder) == 0
    assert capsys.readouterr().out == "1 commit subjects checked, 0 faults\n"
    repository.commit("Adding y")
    assert commit_subjects.main([], repository.folder) == 1
    assert "'Adding y' begins with 'Adding'; expected a verb" in capsys.readouterr().out
    assert commit_subjects.main(["nowhere..HEAD"], repository.folder) == 1
    assert "nowhere..HEAD: git knows no commits in this range" in capsys.readouterr().err


def test_folder_without_history_has_nothing_to_check(repository, tmp_path, monkeypatch):
    """A source archive passes."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "archive").mkdir()
    assert commit_subjects.main([], tmp_path / "archive") == 0
