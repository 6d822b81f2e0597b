"""Writes an experiment's results.json, its report.md with tables, and its plots."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dise_app.files.texts import write_json, write_text
from dise_app.terminal.lines import folded
from dise_eval.datasets.countdown import PUBLIC_PROBLEMS
from dise_eval.experiments.experiments import Experiment
from dise_eval.experiments.records import RecordT
from dise_eval.experiments.run import command_line, key_of
from dise_eval.reports.forest import Forest, draw
from dise_eval.reports.table import FigureTable
from dise_eval.statistics.resampling import LEAST_QUESTIONS

PUBLIC = {"countdown_cd3_test.jsonl sha256 9916f614621e26fb": PUBLIC_PROBLEMS}


@dataclass(frozen=True, slots=True)
class Report:
    """What an experiment found: its figures, further tables by the names that
    results.json has for them, and which figures are drawn. shown: the columns of each
    table of the figures in Markdown; without any, one table with all. sentence: what they
    say. brief: what the terminal shows in place of the figures.
    """

    title: str
    figures: FigureTable
    forests: Sequence[Forest]
    more: Mapping[str, FigureTable] = field(default_factory=dict)
    shown: Sequence[Sequence[str]] = ((),)
    sentence: str = ""
    brief: FigureTable | None = None

    def plain(self, output: Path) -> str:
        """Return what the terminal shows: the title, a table of few figures, what they say,
        and where the others are. No word and no number is broken.
        """
        width = shutil.get_terminal_size().columns
        table = self.figures.plain(next(iter(self.shown), ()), width)
        table = table if self.brief is None else self.brief.plain((), width)
        parts = folded(self.title), table, folded(self.sentence), f"All else: {output}/report.md"
        return "\n\n".join(filter(None, parts))


def write(output: Path, experiment: Experiment[RecordT], report: Report) -> None:
    """Write results.json, the figures with what they depend on; report.md: the title, a
    line on model and data, the command, the tables; and the plots. Raises DiseError if a
    file cannot be written.
    """
    key, count, command = key_of(experiment), len(experiment.questions.items), command_line()
    record = {**key, "command": command, "num_questions": count}
    record |= {"figures": report.figures.to_dict()}
    record |= {name: table.to_dict() for name, table in report.more.items()}
    record |= {"sentence": report.sentence} if report.sentence else {}
    write_json(output / "results.json", record)
    public = PUBLIC.get(experiment.questions.source)
    link = f"; [its file]({public})" if public else ""
    brackets = (
        "In brackets 95 % intervals over questions."
        if count >= LEAST_QUESTIONS
        else f"Below {LEAST_QUESTIONS} questions no mean has an interval."
    )
    facts = (
        f"Model `{key['model']}`, data set `{key['dataset']}` ({key['source']}{link}), prompts "
        f"`{key['prompts']}`, n = {count} questions. {brackets}"
    )
    forests = [plot for plot in report.forests if plot.table.has(plot.column)]
    for plot in forests:
        draw(plot, output)
    paragraphs = [
        f"# {report.title}",
        facts,
        *([f"```\n{command}\n```"] if command else []),
        *filter(None, [report.sentence]),
        *(report.figures.markdown(columns) for columns in report.shown),
        *(table.markdown() for table in report.more.values() if table.rows),
        *(f"![{plot.title}]({plot.name}.png)" for plot in forests),
    ]
    write_text(output / "report.md", "\n\n".join(paragraphs) + "\n")
