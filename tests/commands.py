"""Runs commands as a program would. Tests that import this are skipped without their packages."""

from __future__ import annotations

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from packedtri._cli.app import app


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def refusal(*arguments: object) -> str:
    """What a command says that refuses its arguments, in one line without the frame."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("│", " ").split())


def help_of(command: str) -> str:
    """What its --help prints, in lines that are not broken."""
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "1000"})
    assert result.exit_code == 0, result.output
    return result.output
