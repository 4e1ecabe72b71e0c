"""`noetl completion`: scripts that know every command, option, format, kind and topic."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import COMMANDS, GROUPS, Command, Spec, every, load
from noetl.cli.failures import CommandFailed
from noetl.cli.naming import KINDS, NAMES
from noetl.cli.output import COLORS, STRUCTURED
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl.cli.output import Output


def completion(
    ctx: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a completion script for a shell.

    Commands, options and formats are in the script itself. Names of the server (runs, playbooks,
    pools) are asked for where one is expected, for 300 ms at most; offline there are none.
    """
    out: Output = ctx.obj
    if shell not in SHELLS:
        hint = nearest(shell, tuple(SHELLS))
        raise CommandFailed("usage", f"there is no script for `{shell}`", hint=hint)
    out.write(SHELLS[shell]([*_groups(), *(_entry(name, one) for name, one in every())]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a shell needs to know about one command; no words means files.

    The name of a command of a group has two words; the words of a group are its commands.
    """

    name: str
    summary: str
    options: tuple[Any, ...]
    outputs: tuple[str, ...]
    output_names: tuple[str, ...]
    words: tuple[str, ...]
    live: str = ""
    """The kind of names that its argument is, which the server knows."""

    @property
    def names(self) -> list[str]:
        """Every spelling of every option."""
        return [name for option in self.options for name in option.opts]


def _groups() -> "Iterator[Entry]":
    for name in GROUPS:
        words = tuple(load(name).spec.commands)  # type: ignore[union-attr]  # they are groups
        yield Entry(
            name=name, summary=COMMANDS[name], options=(), outputs=(), output_names=(), words=words
        )


def _entry(name: str, command: Command) -> Entry:
    own = [param for param in command.params if param.param_type_name == "option"]
    return Entry(
        name=name,
        summary=command.spec.summary,
        options=(*own, *command.shared),
        outputs=command.spec.outputs,
        output_names=("-o", "--output", *command.spec.output_aliases),
        words=_words(command.spec.takes),
        live=command.spec.takes if command.spec.takes in KINDS else "",
    )


def _words(takes: str) -> tuple[str, ...]:
    if takes == "kinds":
        from noetl.dsl.schema import kinds

        return kinds()
    if takes == "topics":
        from noetl.cli.explain import topics

        return topics()
    if takes == "tools":
        from noetl.dsl.schema import tool_kinds

        return tuple(tool_kinds())
    if takes == "templates":
        from noetl.cli.init import TEMPLATES

        return tuple(TEMPLATES)
    return tuple(SHELLS) if takes == "shells" else ()


_ASKS = {"context": "contexts", "path": "playbooks", "pool": "pools", "parent": "executions"}
"""Options whose value is a name of the server, or of a context."""


def _asks(option: Any) -> str:  # noqa: ANN401 - private to typer
    return _ASKS.get(option.name, "") if option.param_type_name == "option" else ""


def bash(entries: list[Entry]) -> str:
    """A function for `complete -F`; where it offers nothing, bash offers files."""
    cases = "\n".join(_bash_case(entry) for entry in entries)
    front = ("-o", "--output", "--json", "-q", "-v", "--color", "--help", "--version")
    return f"""\
# bash completion of noetl; use it with: source <(noetl completion bash)
_noetl() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= words= i
  if [[ $word == = ]]; then word=
  elif [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      -o|--output|--color) ((i++)) ;;
      -*) ;;
      *)
        if [[ $command ]]; then command+=" ${{COMP_WORDS[i]}}"; break; fi
        command=${{COMP_WORDS[i]}}
        case $command in {"|".join(GROUPS)}) ;; *) break ;; esac ;;
    esac
  done
  case $before in
    --color) words="{" ".join(COLORS)}" ;;
    *)
      case $command in
        "")
          case $before in
            -o|--output) words="{" ".join(STRUCTURED)} table name" ;;
            *) words="{" ".join((*COMMANDS, *front))}" ;;
          esac ;;
{cases}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _noetl noetl ntl
"""


def _bash_case(entry: Entry) -> str:
    options = " ".join((*entry.names, "--help"))
    if not entry.outputs:
        return f'        {entry.name}) words="{" ".join((*entry.words, "--help"))}" ;;'
    asked = {"|".join(option.opts): _asks(option) for option in entry.options if _asks(option)}
    names = "".join(f"            {opts}) {_bash_ask(kind)} ;;\n" for opts, kind in asked.items())
    rest = _bash_ask(entry.live) if entry.live else f'words="{" ".join(entry.words)}"'
    return f"""\
        "{entry.name}")
          case $before in
            {"|".join(entry.output_names)}) words="{" ".join(entry.outputs)}" ;;
{names}            *) if [[ $word == -* ]]; then words="{options}"; else {rest}; fi ;;
          esac ;;"""


def _bash_ask(kind: str) -> str:
    return f'words=$(noetl {NAMES} {kind} "$word" 2>/dev/null)'


def zsh(entries: list[Entry]) -> str:
    """A function for `compdef`."""
    commands = "\n".join(f"    {_quoted(f'{name}:{told}')}" for name, told in COMMANDS.items())
    cases = "\n".join(_zsh_case(entry) for entry in entries if entry.outputs)
    groups = "\n".join(_zsh_group(entry) for entry in entries if not entry.outputs)
    return f"""\
#compdef noetl ntl
# zsh completion of noetl; use it with: source <(noetl completion zsh)
_noetl() {{
  local -a commands
  commands=(
{commands}
  )
  local context state state_descr line name
  typeset -A opt_args
  _arguments -C '--version[Print the version.]' '--help[Show the help.]' \\
    '1:command:->command' '*::argument:->rest'
  case $state in
    command) _describe command commands ;;
    rest)
      name=$line[1]
      case $name in
{groups}
      esac
      case $name in
{cases}
      esac ;;
  esac
}}
compdef _noetl noetl ntl
"""


def _zsh_case(entry: Entry) -> str:
    words = [_zsh_option(entry, option, name) for option in entry.options for name in option.opts]
    argument = f"({' '.join(entry.words)})" if entry.words else "_files"
    argument = _zsh_ask(entry.live) if entry.live else argument
    words.append(_quoted(f"*:argument:{argument}"))
    return f"        {_quoted(entry.name)}) _arguments {' '.join(words)} ;;"


def _zsh_group(entry: Entry) -> str:
    return f"""\
        {entry.name})
          if (( CURRENT == 2 )); then compadd {" ".join(entry.words)}; return; fi
          name="$name $words[2]"; shift words; (( CURRENT-- )) ;;"""


def _zsh_option(entry: Entry, option: Any, name: str) -> str:  # noqa: ANN401 - private to typer
    about = (option.help or "").replace("[", "(").replace("]", ")")
    values = _values(entry, option)
    value = f":value:({' '.join(values)})" if values else ""
    value = f":name:{_zsh_ask(_asks(option))}" if _asks(option) else value
    return _quoted(f"{name}[{about}]{value}")


def _zsh_ask(kind: str) -> str:
    return f'{{compadd -- ${{(f)"$(noetl {NAMES} {kind} "$PREFIX" 2>/dev/null)"}}}}'


def _values(entry: Entry, option: Any) -> tuple[str, ...]:  # noqa: ANN401 - private to typer
    if option.name == "output":
        return entry.outputs
    return COLORS if option.name == "color" else ()


def fish(entries: list[Entry]) -> str:
    """One `complete` line per command, option and argument."""
    lines = ["# fish completion of noetl; use it with: noetl completion fish | source"]
    for name, told in COMMANDS.items():
        about = _quoted(told)
        lines.append(f"complete -c noetl -f -n __fish_use_subcommand -a {name} -d {about}")
    for entry in entries:
        words = entry.name.split()
        seen = "-n '" + "; and ".join(f"__fish_seen_subcommand_from {w}" for w in words) + "'"
        if entry.live:
            lines.append(f"complete -c noetl -f {seen} -a {_quoted(_fish_ask(entry.live))}")
        elif entry.words:
            lines.append(f"complete -c noetl -f {seen} -a {_quoted(' '.join(entry.words))}")
        else:
            lines.append(f"complete -c noetl -F {seen}")
        for option in entry.options:
            values = _values(entry, option)
            takes = f" -x -a {_quoted(' '.join(values))}" if values else ""
            takes = f" -x -a {_quoted(_fish_ask(_asks(option)))}" if _asks(option) else takes
            names = " ".join(_fish_name(name) for name in option.opts)
            lines.append(f"complete -c noetl {seen} {names}{takes} -d {_quoted(option.help or '')}")
    lines.append("complete -c ntl -w noetl")
    return "\n".join(lines) + "\n"


def _fish_ask(kind: str) -> str:
    return f"(noetl {NAMES} {kind} (commandline -ct) 2>/dev/null)"


def _fish_name(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS: "dict[str, Callable[[list[Entry]], str]]" = {"bash": bash, "zsh": zsh, "fish": fish}

COMMAND = Spec(
    run=completion,
    outputs=("table",),
    examples=(
        "noetl completion bash > noetl.bash",
        "noetl completion fish > noetl.fish",
    ),
    takes="shells",
)
