"""The verdict on one answer as data: a status, findings, and the outputs that agree.

The points, the tables, the exit codes and the progress depend on these fields only. The module ``feedback``
writes sentences for people from the same fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from npformer.gradcheck import relations

PASSES = ("pass", "pass_variant")
STATUSES = (*PASSES, "known_mistake", "ambiguous", "unrecognised", "error")


class Role(StrEnum):
    """The role of a finding in the feedback. The order of the roles is the order of the sentences."""

    PROBLEM = "problem"  # the reason why an answer could not be checked
    AGREEMENT = "agreement"  # the correct parts
    PLACE = "place"  # the first difference
    OBSERVATION = "observation"  # a description of the difference
    REMARK = "remark"  # an additional fact


class Kind(NamedTuple):
    """A kind of finding: the role in the feedback, and the names of the parameters."""

    role: Role
    parameters: tuple[str, ...] = ()


def _kinds(role: Role, **parameters: str) -> dict[str, Kind]:
    """Make several kinds with one role. Each value is a string with the kind's parameter names."""
    return {kind: Kind(role, tuple(names.split())) for kind, names in parameters.items()}


# The relations between two arrays that gradcheck detects are kinds of findings too.
_RELATIONS = {kind: Kind(Role.OBSERVATION, names) for kind, names in relations.KINDS.items()}

KINDS: dict[str, Kind] = {
    **_RELATIONS,
    **_kinds(
        Role.PROBLEM,
        unanswered="",
        returned_none="",
        numpy_replaced="function",
        too_long="seconds",
        unreadable="error",
        not_a_letter="last",
        not_a_truth_value="",
        not_a_number="",
        not_numbers="count",
        function_expected="name signature",
        value_expected="",
        text_stopped="error message",
        program_ended="",
        too_much_memory="megabytes",
        too_many_processes="count",
        budget_used="",
        no_answer_sent="",
        checks_given_up="",
        not_checked="error",
        name_suggested="name wanted",
    ),
    **_kinds(
        Role.AGREEMENT,
        all_agree="",
        numbers_are_correct="",
        is_npformers="function",
        outputs_agree="agree",
        outputs_agree_where_it_runs="agree",
        some_outputs_agree="agree differ",
        shape_agrees="",
        shapes_agree="",
        shape_agrees_where_it_runs="",
        runs="",
        columns_agree="indices",
        rows_agree="indices",
        numbers_agree="indices",
        entries_agree="axis indices",
        ordinary_sizes_agree="",
        one_number="",
        some_numbers_agree="count agreeing",
        no_number_agrees="count",
        rounded_answer="kept decimals",
        truncated_answer="kept decimals",
    ),
    **_kinds(
        Role.PLACE,
        not_this_option="left",
        not_so="",
        first_wrong_number="first",
        stopped="error message line function is_remote",
        stopped_in_one_check="error message line function is_remote",
        unreadable_type="name type",
        unreadable_count="expected",
        one_call_returned_none="",
        wrong_number_of_axes="found expected",
        wrong_shape="found longer shorter",
        differs="",
        differs_at="index differing entries has_nan",
        wrong_count_of_numbers="found shape expected",
        one_number_expected="found shape",
        not_finite_answer="",
        finite_but_wrong_far_out="",
        unmended="",
    ),
    **_kinds(
        Role.OBSERVATION,
        # Findings about an answer that is a number or a list of numbers.
        off_by="share",
        too_large="",
        too_small="",
        all_too_large="",
        all_too_small="",
        too_large_and_too_small="",
        numbers_differ="places",
        numbers_too_large="places",
        numbers_too_small="places",
        sign_differs="",
        numbers_permuted="",
        some_signs_differ="",
        numbers_shifted="",
        numbers_scaled="",
        one_off="",
        size_is_right="",
        # Findings about the form of the returned value.
        random="",
        integers="",
        outputs_returned="expected returned container",
        # Findings of the detectors that compare numbers.
        term_sign="name",
        multiple_added="name",
        constant_in_each="line",
        multiple_in_each="name line",
        half_precision="",
        additive_mask="",
        inverted="",
        logarithm="",
        squared="",
        one_hot="",
        rounded="",
        rounded_to_two_decimals="",
        cumulative_over_rows="",
        cumulative_in_rows="",
        permuted="",
        factor_per_call="",
        factor_per_row="",
        factor_per_column="",
        scaled="factor",
        shifted="",
        scaled_and_shifted="factor",
        softmax_of_scaled_scores="factor",
        is_argument="name",
        is_landmark="landmark",
        is_scaled_landmark="landmark factor",
        multiplied_by_argument="name",
        divided_by_argument="name",
        too_few="line end",
        too_many="line end",
        too_few_entries="axis end",
        lost_axis="axis end",
        too_many_entries="axis end",
        true_for_false="index",
        false_for_true="index",
        both_truths_wrong="index other",
        unfilled="index whole_line",
        nowhere_finite="",
        nan_at="index others_agree",
        infinite_at="index others_agree",
        not_finite_without_mask="",
        not_finite_in_calls="bad calls",
        nearly_correct="",
        rows_do_not_sum_to_1="difference",
        sum_is_not_1="difference",
        ratios_in_rows="",
        ratios_in_vector="",
        # Findings of the detectors that call the function again.
        unused="names",
        unused_there="names",
        correct_for_changed_argument="name change",
        exchanged_arguments="first second",
        weights_transposed="names",
        agrees_without_mask="",
        agrees_at_neutral="names values",
        does_not_cancel="shift",
        not_linear="name change",
        hidden_keys_weighted="",
        causal_without_mask="",
        depends_on_wrong_argument="argument",
        depends_on_other_lines="argument axis index",
        depends_on_too_much="argument axis index",
        ignores_line="argument index",
        # Findings of the detectors of single exercises.
        equal_speeds="",
        other_base="layout base",
        sines_agree="amount",
        cosines_agree="amount",
        sines_agree_and_a_wave="amount column speed is_correct",
        cosines_agree_and_a_wave="amount column speed is_correct",
        waves_at_correct_speeds="",
        wave_speeds="speeds",
        pair_length_changes="",
        pairs_reflected="",
        first_position_turns="angles",
        pair_angles="angles",
        weight_depends_on_more="",
        weights_asymmetric="",
        weights_follow_other_angles="",
        key_heads_used="last heads",
        calls_missing="names",
        calls_in_order="names",
        call_gets_other_array="name",
        differs_after_last_call="name",
        mean_of_rows_missing="",
        single_row_differs="",
        loss_has_a_limit="limit",
        unit_values="values",
        unit_slopes="values",
        unit_is="activation",
        running_mean="mean kept taken power",
        likelier_token_dropped="",
        too_many_tokens="",
        too_few_tokens="",
        too_many_and_too_few_tokens="",
    ),
    **_kinds(Role.REMARK, argument_changed="names", has_nan=""),
}


@dataclass(frozen=True)
class Finding:
    """One fact about an answer.

    Attributes
    ----------
    kind : str
        A key of ``KINDS``, such as "scaled" or "unused".
    output : str
        The name of the output that the finding is about, or "" for all outputs.
    parameters : mapping
        A value for each parameter of the kind, by name.
    view : str
        The name of the view whose derived calls show the fact, such as "weights" for the attention weights.
        The name is "" if the calls of the exercise show the fact.

    Raises
    ------
    ValueError
        If the kind is unknown, or if the parameters are not those of the kind.
    """

    kind: str
    output: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    view: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"Finding: there is no kind {self.kind!r}")
        expected = KINDS[self.kind].parameters
        if set(self.parameters) != set(expected):
            received = ", ".join(self.parameters) or "none"
            raise ValueError(f"Finding: {self.kind} has the parameters {expected}; received {received}")

    @property
    def role(self) -> Role:
        """The role of this finding in the feedback."""
        return KINDS[self.kind].role


def make_finding(kind: str, **parameters: Any) -> Finding:
    """Make a finding of this kind."""
    return Finding(kind, parameters=parameters)


class Verdict(NamedTuple):
    """The verdict on one answer."""

    exercise: str  # the id of the exercise
    status: str  # one of STATUSES
    findings: tuple[Finding, ...] = ()
    codes: tuple[str, ...] = ()  # the codes of the listed mistakes or variants that give this answer
    outputs: tuple[str, ...] = ()  # the names of all outputs of the exercise
    agreed: tuple[str, ...] = ()  # the outputs that are correct on every call; () if all are rejected

    @property
    def passes(self) -> bool:
        """Whether the answer is correct, possibly as an accepted variant."""
        return self.status in PASSES

    def of_role(self, role: Role) -> tuple[Finding, ...]:
        """Return the findings that have this role."""
        return tuple(finding for finding in self.findings if finding.role == role)
