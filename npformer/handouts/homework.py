"""The homework of the twelve-week course, as one assignment file per week.

A test compares HOMEWORK with the table in notebooks/guide/course.md.
"""

import math
from datetime import date, datetime, time, timedelta
from pathlib import Path

from npformer.exercises.assignment_file import format_assignment, make_assignment

HOMEWORK = {  # {week: the ids of its exercises}
    1: "order.bag order.encoding_use order.padding pe.even pe.pair pe.fast pe.entry pe.row pe.both pe.table"
    " pe.exp_log addition.vector addition.scale embedding.forward",
    2: "pe.shift pe.wavelength pe.layout rope.forward addition.how order.trained order.learned",
    3: "ffn.what ffn.own_weights ffn.sharing ffn.token ffn.forward ffn.convolution ffn.bend backward.bias"
    " backward.relu cost.wider cost.parameters ffn.backward",
    4: "cost.scores attention.scale attention.softmax attention.axis attention.causal softmax.forward"
    " mask.causal softmax.backward backward.softmax attention.forward",
    5: "attention.width heads.split heads.merge norm.axis norm.token layer_norm.forward layer_norm.backward"
    " attention.backward",
    6: "block.mixing block.order block.depth ffn.layers order.clinic block.forward block.backward",
    7: "adam.step embedding.backward order.twins order.coin",
    8: "order.alibi order.met decoder.forcing decoder.cross decoder.cells loss.uniform cross_entropy.forward"
    " cross_entropy.backward",
    9: "decoder.greedy decoder.kept loss.smoothed",
    10: "search.pool search.cosine search.unit gpu.waits gpu.clock",
    11: "modern.shift modern.gate_width modern.kept_bytes modern.tiles modern.bytes rms_norm.forward"
    " rms_norm.backward gate.forward gate.backward rope.backward rope.attention grouped.backward"
    " attention.grouped sample.temperature sample.top_p mask.kept",
    12: "heads.control quantise.groups port.block lora.count lora.factors sft.targets answer.log_prob"
    " dpo.backward reward.baseline grpo.advantage clip.forward clip.backward reward.kl",
}
LAST_MINUTE = time(23, 59)


def make_homework_files(folder: Path, start: date | None = None) -> dict[Path, str]:
    """Make the assignment files of the course, hw1.toml to hw12.toml. Each exercise gives one point.

    Parameters
    ----------
    folder : Path
    start : date, optional
        The first day of week 1. The homework of a week is due at the end of the week's last day. Without a
        start, the files have no due date.

    Returns
    -------
    files : dict of Path to str
        The content of each file. No file is written.
    """
    files = {}
    for week, ids in HOMEWORK.items():
        due = math.inf
        if start is not None:
            last_day = start + timedelta(days=7 * week - 1)
            due = datetime.combine(last_day, LAST_MINUTE).timestamp()
        assignment = make_assignment(ids.split())._replace(title=f"Week {week}", due=due)
        files[folder / f"hw{week}.toml"] = format_assignment(assignment)
    return files
