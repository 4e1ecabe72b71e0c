import re
import tomllib

import yaml

LARGEST_BYTES = 512 * 1024

# Written in pieces, so that this file does not find itself.
HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("crates", "io"),
        ("conda", "anaconda", "org"),
        ("proxy", "golang", "org"),
    ]
]
MACHINE_PATH = re.compile(r"(?<![\w.}\-])/(?:work|root)/\w")
SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----\s*[A-Za-z0-9+/=]{40}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bghp_[A-Za-z0-9]{36}\b|\bxox[abp]-[0-9A-Za-z-]{20}"
)


def test_no_file_names_a_package_registry(root, files):
    assert _lines(root, files, lambda line: any(host in line for host in HOSTS)) == []


def test_no_file_names_a_path_of_a_machine(root, files):
    assert _lines(root, files, MACHINE_PATH.search) == []


def test_no_file_holds_a_secret(root, files):
    assert [str(p.relative_to(root)) for p in files if SECRETS.search(_text(p))] == []


def test_no_file_is_large(root, files):
    large = [str(p.relative_to(root)) for p in files if p.stat().st_size > LARGEST_BYTES]

    assert large == []


def test_every_toml_and_yaml_file_can_be_read(root, files):
    for path in files:
        if path.suffix == ".toml":
            tomllib.loads(_text(path))
        elif path.suffix in {".yaml", ".yml"} and root / "tests" not in path.parents:
            list(yaml.safe_load_all(_text(path)))


def test_a_module_over_500_lines_says_why_in_its_docstring(root):
    long = []
    for path in sorted((root / "src").rglob("*.py")):
        text = _text(path)
        docstring = text.split('"""')[1] if text.startswith('"""') else ""
        if text.count("\n") > 500 and "long because" not in " ".join(docstring.split()).lower():
            long.append(str(path.relative_to(root)))

    assert long == []


def test_planted_hosts_paths_and_secrets_are_found(tmp_path):
    planted = tmp_path / "planted.txt"
    planted.write_text(f"https://{HOSTS[0]}/simple\ncat /{'work'}/main/x\nAKIA{'A' * 16}\n")

    assert any(host in _text(planted) for host in HOSTS)
    assert MACHINE_PATH.search(_text(planted))
    assert SECRETS.search(_text(planted))
    assert not MACHINE_PATH.search("https://example.com/work/x src/work/x {{ home }}/work/x")


def _text(path):
    return path.read_bytes().decode("utf-8", errors="replace")


def _lines(root, files, is_bad):
    return [
        f"{path.relative_to(root)}:{number}"
        for path in files
        for number, line in enumerate(_text(path).splitlines(), 1)
        if is_bad(line)
    ]
