"""The graph of a recipe: labels fit into their boxes and stay distinguishable."""

import pytest

from proofmill.viewer.recipes import LABEL, _label


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("sft/cold", "sft/cold"),
        (f"sft/{'x' * (LABEL - 4)}", f"sft/{'x' * (LABEL - 4)}"),
        (f"sft/{'x' * (LABEL - 3)}", f"sft/xxxxxxxxx…{'x' * 14}"),
        ("responses/grpo-nano@bench@greedy", "responses grpo-nano@greedy"),
    ],
)
def test_label_is_shortened_only_beyond_its_room(name, label):
    """A name that just fits is complete; of a longer one the beginning and the end are left."""
    assert _label(name) == label and len(label) <= LABEL


@pytest.mark.parametrize("model", ["m" * 40, "a-b"])
@pytest.mark.parametrize("sampling", ["greedy", "s" * 40])
def test_label_of_a_derived_name_ends_with_its_sampling(model, sampling):
    """However long the parts are, the label fits, and the sampling setting is recognized by its end."""
    label = _label(f"responses/{model}@bench@{sampling}")
    assert len(label) <= LABEL and label.startswith("resp") and label.endswith(sampling[-6:])
