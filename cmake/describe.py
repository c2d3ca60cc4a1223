"""Generates man pages and completions for bash, zsh and fish from the output of `PROGRAM describe`.

  describe.py PROGRAM OUTPUT    OUTPUT/man/*.1, OUTPUT/completions/{bash/NAME,zsh/_NAME,fish/NAME.fish}

OUTPUT is for one program.
"""

import datetime
import json
import os
import pathlib
import subprocess
import sys

FILES = {"FILE", "PATH", "PATH|ADDR", "DATA", "TARGET"}


def walk(command, path=()):
    """Every command with its parents' names: ("map", "info")."""
    yield path, command
    for sub in command["subcommands"]:
        yield from walk(sub, path + (sub["name"],))


def first_line(text):
    return text.split("\n")[0]


# Man pages.

def roff(text):
    """Text that is not interpreted, whatever it begins with."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text[:1] in (".", "'") else text


def synopsis(program, path, command):
    words = [f".B {roff(' '.join((program,) + path))}"]
    if command["subcommands"]:
        return words + [".I SUBCOMMAND", "[OPTIONS]"]
    words.append("[OPTIONS]")
    for option in command["options"]:
        if "positional" in option:
            name = option["positional"] + ("..." if option["repeated"] else "")
            words.append(f".I {roff(name)}" if option["required"] else f"[{roff(name)}]")
    return words


def items(options):
    for option in options:
        if "positional" in option:
            head = f".I {roff(option['positional'])}"
        else:
            names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option["names"])
            head = names + (f" \\fI{roff(option['type'])}\\fR" if option["type"] else "")
        yield ".TP"
        yield head
        text = roff(option["description"])
        if option["required"] and "positional" not in option:
            text += " (required)"
        if option["default"] and not option["flag"]:
            text += f" (default: {roff(option['default'])})"
        yield text or "\\&"


def man_page(program, path, command, version, date):
    name = "-".join((program,) + path)
    yield f'.TH {roff(name.upper())} 1 {date} "{program} {version}" "User Commands"'
    yield ".SH NAME"
    yield f"{roff(name)} \\- {roff(first_line(command['description']))}"
    yield ".SH SYNOPSIS"
    yield from synopsis(program, path, command)
    rest = command["description"].split("\n")[1:]
    if rest:
        yield ".SH DESCRIPTION"
        yield from (roff(line) for line in rest if line.strip())
    if command["subcommands"]:
        yield ".SH SUBCOMMANDS"
        for sub in command["subcommands"]:
            yield ".TP"
            yield f".BR {roff(name + '-' + sub['name'])} (1)"
            yield roff(first_line(sub["description"])) or "\\&"
    arguments = [option for option in command["options"] if "positional" in option]
    if arguments:
        yield ".SH ARGUMENTS"
        yield from items(arguments)
    yield ".SH OPTIONS"
    yield from items([option for option in command["options"] if "positional" not in option])
    if command["footer"]:
        yield ".SH NOTES"
        yield ".nf"
        yield from (roff(line) or ".sp" for line in command["footer"].strip("\n").split("\n"))
        yield ".fi"
    yield ".SH EXIT STATUS"
    yield "0: success. 1: the answer is \"no\". 2: wrong usage or bad input. 3: input/output or network failure."
    yield ".SH SEE ALSO"
    others = [roff(program)] if path else [roff(f"{program}-{sub['name']}") for sub in command["subcommands"]]
    for index, other in enumerate(others):
        yield f".BR {other} (1)" + ("," if index + 1 < len(others) else "")


# Completions.

def function_of(name):
    """The name of a program as the name of a shell's function."""
    return name.replace("-", "_")


def takes_files(option):
    return option["type"] in FILES or "positional" in option


def names_of(command):
    return [name for option in command["options"] for name in option["names"] if "positional" not in option]


def case_of_commands(root, indent, shell_case):
    for path, _ in walk(root):
        if path:
            yield f'{indent}"{" ".join(path[:-1])} {path[-1]}") {shell_case.format(" ".join(path))} ;;'


def bash_value(option):
    """The completion of an option's value."""
    if option["choices"]:
        choices = f"choices=\"{' '.join(option['choices'])}\""
        # Keeps the part of a list before the last comma.
        return choices + ("; [[ $current != *,* ]] || prefix=${current%,*}," if option["repeated"] else "")
    if option["type"] == "DIR":
        return "mapfile -t COMPREPLY < <(compgen -d -- \"$current\"); return"
    if takes_files(option):
        return "mapfile -t COMPREPLY < <(compgen -f -- \"$current\"); return"
    return "return"


def bash(root):
    name = root["name"]
    yield f"# Completion of {name} for bash; generated."
    yield f"_{function_of(name)}() {{"
    yield "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}"
    yield "  local command= words= choices= prefix= files= index"
    yield "  # --option=value is three words here."
    yield "  if [[ $current == '=' ]]; then"
    yield "    current="
    yield "  elif [[ $previous == '=' && $COMP_CWORD -gt 1 ]]; then"
    yield "    previous=${COMP_WORDS[COMP_CWORD-2]}"
    yield "  fi"
    yield "  for ((index = 1; index < COMP_CWORD; ++index)); do"
    yield "    case \"$command ${COMP_WORDS[index]}\" in"
    yield from case_of_commands(root, "      ", "command=\"{}\"")
    yield "    esac"
    yield "  done"
    yield "  COMPREPLY=()"
    yield "  case \"$command:$previous\" in"
    for path, command in walk(root):
        for option in command["options"]:
            if not option["flag"] and "positional" not in option:
                keys = "|".join(f'"{" ".join(path)}:{name}"' for name in option["names"])
                yield f"    {keys}) {bash_value(option)} ;;"
    yield "  esac"
    yield "  if [[ -n $choices ]]; then"
    yield "    compopt +o filenames 2>/dev/null  # a folder may have the name of a choice"
    yield "    mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -W \"$choices\" -- \"${current#\"$prefix\"}\")"
    yield "    return"
    yield "  fi"
    yield "  case \"$command\" in"
    for path, command in walk(root):
        words = [sub["name"] for sub in command["subcommands"]]
        files = any(takes_files(option) for option in command["options"] if "positional" in option)
        yield (f"    \"{' '.join(path)}\") words=\"{' '.join(words)}\"; [[ $current != -* ]] || "
               f"words=\"{' '.join(names_of(command))}\"{'; files=1' if files else ''} ;;")
    yield "  esac"
    yield "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")"
    yield "  if [[ -n $files && $current != -* ]]; then"
    yield "    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$current\")"
    yield "  fi"
    yield "}"
    yield f"complete -o filenames -F _{function_of(name)} {name}"


def zsh_quote(text):
    for special in "\\:[]":
        text = text.replace(special, "\\" + special)
    return text.replace("'", "'\\''")


def zsh_value(option):
    """The completion of an option's value, for _arguments."""
    if option["choices"]:
        choices = " ".join(option["choices"])
        return f"_sequence compadd - {choices}" if option["repeated"] else f"({choices})"
    if option["type"] == "DIR":
        return "_files -/"
    return "_files" if takes_files(option) else " "


def zsh_option(option):
    """The arguments of _arguments: one per name; a single one suffices unless the option may be
    repeated.
    """
    text = zsh_quote(first_line(option["description"]))
    alone = "*" if option["repeated"] else f"({' '.join(option['names'])})"
    for name in option["names"]:
        if option["flag"]:
            yield f"'{alone}{name}[{text}]'"
        else:
            joined = "=" if name.startswith("--") else "+"
            yield f"'{alone}{name}{joined}[{text}]:{zsh_quote(option['type'] or 'value')}:{zsh_value(option)}'"


def zsh(root):
    yield f"#compdef {root['name']}"
    yield f"# Completion of {root['name']} for zsh; generated."
    yield "local command= depth=0 index"
    yield "for ((index = 2; index < CURRENT; ++index)); do"
    yield "  case \"$command $words[index]\" in"
    yield from case_of_commands(root, "    ", "command=\"{}\" depth=$((index - 1))")
    yield "  esac"
    yield "done"
    yield "shift $depth words"
    yield "((CURRENT -= depth))"
    yield "case \"$command\" in"
    for path, command in walk(root):
        yield f"  \"{' '.join(path)}\")"
        yield "    local -a subcommands=("
        for sub in command["subcommands"]:
            yield f"      '{zsh_quote(sub['name'])}:{zsh_quote(first_line(sub['description']))}'"
        yield "    )"
        yield "    _arguments -s \\"
        for option in command["options"]:
            if "positional" not in option:
                yield from (f"      {word} \\" for word in zsh_option(option))
        if command["subcommands"]:
            yield "      '1:subcommand:{_describe subcommand subcommands}'"
        else:
            yield "      '*:file:_files'"
        yield "    ;;"
    yield "esac"


def fish_quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_value(option):
    """The options of `complete` for an option's value."""
    if option["flag"]:
        return ""
    if option["choices"]:
        choices = " ".join(option["choices"])
        return " -x -a " + fish_quote(f"(__fish_append , {choices})" if option["repeated"] else choices)
    if option["type"] == "DIR":
        return " -x -a '(__fish_complete_directories)'"
    return " -r" if takes_files(option) else " -x"


def fish(root):
    name = root["name"]
    function = f"__{function_of(name)}_command"
    yield f"# Completion of {name} for fish; generated."
    yield f"function {function}"
    yield "    set -l command ''"
    yield "    for word in (commandline -opc)[2..-1]"
    yield "        switch \"$command $word\""
    for path, _ in walk(root):
        if path:
            yield f"            case '{' '.join(path[:-1])} {path[-1]}'"
            yield f"                set command '{' '.join(path)}'"
    yield "        end"
    yield "    end"
    yield "    test \"$command\" = \"$argv[1]\""
    yield "end"
    for path, command in walk(root):
        start = f"complete -c {name} -n \"{function} '{' '.join(path)}'\""
        if command["subcommands"]:
            yield f"{start} -f"
        for sub in command["subcommands"]:
            yield f"{start} -a {sub['name']} -d {fish_quote(first_line(sub['description']))}"
        for option in command["options"]:
            names = "".join(f" -l {one[2:]}" if one.startswith("--") else f" -s {one[1:]}"
                            for one in option["names"])
            if names:
                yield f"{start}{names}{fish_value(option)} -d {fish_quote(first_line(option['description']))}"


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def main():
    described = json.loads(subprocess.run([sys.argv[1], "describe"], check=True, capture_output=True).stdout)
    root, version = described["command"], described["version"]
    output = pathlib.Path(sys.argv[2])
    moment = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.datetime.fromtimestamp(int(moment), datetime.timezone.utc) if moment else datetime.datetime.now()
    for old in (output / "man").glob("*.1"):
        old.unlink()  # of a removed subcommand
    for path, command in walk(root):
        write(output / "man" / ("-".join((root["name"],) + path) + ".1"),
              man_page(root["name"], path, command, version, day.strftime("%Y-%m-%d")))
    write(output / "completions/zsh" / f"_{root['name']}", zsh(root))
    write(output / "completions/fish" / f"{root['name']}.fish", fish(root))
    # Written last: the build uses it as the sign that all files are complete.
    write(output / "completions/bash" / root["name"], bash(root))


main()
