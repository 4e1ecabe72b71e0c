"""The recipe for Cloud Run: shells take its scripts, Cloud Run its service, nobody a secret."""

import re
import subprocess

import pytest
import yaml

from noetl.cli.command import every
from noetl.dsl.parse import parse
from noetl.settings import SubscriptionSettings
from tests.deploy.shapes import DEPLOY, faults

RECIPE = DEPLOY / "cloud-run"
SCRIPTS = ("setup-gcp.sh", "deploy.sh", "teardown.sh")
TOLD = {
    "PROJECT": "my-project",
    "IMAGE": "europe-docker.pkg.dev/my-project/noetl/noetl:0.1.0",
    "SERVER_URL": "https://noetl.example.com",
    "SUBSCRIPTION_PATH": "plant/readings",
}
# Stands for Google's tool: writes down what it was asked for; nothing is there yet, or all of it.
GCLOUD = """\
#!/bin/sh
echo "$@" >> "$ASKED"
case " $* " in
  *" describe "*) [ "$THERE" = yes ] ;;
  *" replace "*) cat "$6" > "$ASKED.service" ;;
  *"--data-file=-"*) cat > "$ASKED.secret" ;;
esac
"""


@pytest.fixture
def scripts(tmp_path):
    """Run a script with a tool that only writes down what it is asked for."""
    tool = tmp_path / "bin" / "gcloud"
    tool.parent.mkdir()
    tool.write_text(GCLOUD)
    tool.chmod(0o755)
    asked = tmp_path / "asked"

    def run(script, *words, is_there=False, stdin="", **told):
        asked.write_text("")
        env = {
            "PATH": f"{tool.parent}:/usr/bin:/bin",
            "ASKED": str(asked),
            "THERE": "yes" if is_there else "no",
            "TMPDIR": str(tmp_path),
            **TOLD,
            **told,
        }
        done = subprocess.run(
            ["/bin/sh", str(RECIPE / script), *words], input=stdin, capture_output=True, text=True,
            check=False, env={name: value for name, value in env.items() if value}, timeout=30,
        )  # fmt: skip
        return done, asked.read_text().splitlines()

    return run


@pytest.mark.parametrize("name", [*SCRIPTS, "settings.sh"])
def test_a_script_is_one_that_a_plain_shell_takes(name):
    path = RECIPE / name
    done = subprocess.run(
        ["/bin/sh", "-n", str(path)], capture_output=True, text=True, check=False, timeout=30
    )

    assert (done.returncode, done.stderr) == (0, "")
    if name in SCRIPTS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("#!/bin/sh\n")
        assert "\nset -eu\n" in text


@pytest.mark.parametrize("path", sorted(RECIPE.iterdir()), ids=lambda path: path.name)
def test_no_file_holds_a_secret(path):
    text = path.read_text(encoding="utf-8")

    assert not re.search(
        r"(?i)(token|password|secret|key)\w*[=:] *[\"']?[A-Za-z0-9+/_-]{24,}", text
    )
    assert not re.search(r"BEGIN [A-Z ]*PRIVATE KEY|eyJ[A-Za-z0-9_-]{10}|ya29\.", text)


def test_the_service_is_one_that_cloud_run_takes(scripts):
    done, asked = scripts("deploy.sh", "--print")
    service = yaml.safe_load(done.stdout)

    assert (done.returncode, done.stderr, asked) == (0, "", [])
    assert faults(service) == []
    template = service["spec"]["template"]
    kept = template["metadata"]["annotations"]
    assert kept["autoscaling.knative.dev/minScale"] == "1"
    assert kept["run.googleapis.com/cpu-throttling"] == "false"
    account = template["spec"]["serviceAccountName"]
    assert account == "noetl-listener@my-project.iam.gserviceaccount.com"


def test_the_process_reads_what_the_service_tells_it(scripts):
    service = yaml.safe_load(scripts("deploy.sh", "--print")[0].stdout)
    container = service["spec"]["template"]["spec"]["containers"][0]
    told = {each["name"]: each.get("value", "from-a-secret") for each in container["env"]}
    words = container["args"]
    assert words[:4] == ["worker", "--mode", "subscription", "--subscription"]

    settings = SubscriptionSettings.read(told | {"PORT": "8080"}, paths=tuple(words[4:]))

    assert settings.paths == ("plant/readings",)
    assert settings.metrics_bind == "0.0.0.0:8080"
    assert settings.bearer == "from-a-secret"
    assert settings.server_url == "https://noetl.example.com"
    assert settings.spool_default == "gcs:my-project-noetl-listener-spool"
    assert not settings.nats_url


def test_what_is_handed_over_is_what_is_printed(scripts, tmp_path):
    printed = scripts("deploy.sh", "--print")[0].stdout
    done, asked = scripts("deploy.sh")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked.service").read_text() == printed
    assert len(asked) == 1
    assert asked[0].startswith("--project=my-project --quiet run services replace ")
    assert list(tmp_path.glob("tmp.*")) == []


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"SERVER_URL": "http://noetl.example.com"}, "SERVER_URL has to begin with https://"),
        ({"SUBSCRIPTION_PATH": "a|b"}, "has a character that does not belong there"),
        ({"NAME": "a b"}, "is no name"),
        ({"PROJECT": ""}, "the id of a Google Cloud project"),
        ({"IMAGE": ""}, "the image of NoETL"),
    ],
    ids=["http", "path", "name", "no project", "no image"],
)
def test_what_cannot_be_is_refused_before_anything_is_done(scripts, told, said):
    done, asked = scripts("deploy.sh", **told)

    assert done.returncode == 2
    assert (said in done.stderr, asked) == (True, [])


def test_the_setup_gives_three_roles_each_on_one_thing(scripts, tmp_path):
    done, asked = scripts("setup-gcp.sh", stdin="a-token")

    assert done.returncode == 0, done.stderr
    bound = [line for line in asked if "add-iam-policy-binding" in line]
    assert sorted(line.rpartition("--role=")[2] for line in bound) == [
        "roles/pubsub.subscriber",
        "roles/secretmanager.secretAccessor",
        "roles/storage.objectUser",
    ]
    assert not any(" projects add-iam-policy-binding" in line for line in asked)
    made = [line for line in asked if " create " in line]
    assert len(made) == 5
    assert (tmp_path / "asked.secret").read_text() == "a-token"
    assert not any("a-token" in line for line in asked)


def test_the_setup_makes_nothing_twice(scripts):
    done, asked = scripts("setup-gcp.sh", is_there=True)

    assert done.returncode == 0, done.stderr
    assert [line for line in asked if " create " in line] == []


@pytest.mark.parametrize("words", [(), ("--data",)], ids=["kept", "data"])
def test_the_end_keeps_messages_unless_somebody_says_otherwise(scripts, words):
    done, asked = scripts("teardown.sh", *words, is_there=True)

    assert done.returncode == 0, done.stderr
    gone = [line for line in asked if " delete " in line or " rm " in line]
    assert len(gone) == (6 if words else 3)
    assert any("pubsub subscriptions" in line for line in gone) == bool(words)
    assert ("kept: " in done.stdout) == (not words)


def test_the_end_of_what_is_not_there_is_no_fault(scripts):
    done, asked = scripts("teardown.sh", "--data")

    assert done.returncode == 0, done.stderr
    assert [line for line in asked if " describe " not in line] == []


def test_the_document_of_the_page_is_valid_and_listened_for_on_cloud_run():
    text = (RECIPE / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    assert len(blocks) == 1
    parsed = parse(blocks[0])
    assert parsed.errors == ()
    assert parsed.model.spec.runtime.target == "cloud-run"


def test_the_commands_of_the_page_are_commands():
    text = (RECIPE / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^noetl ([a-z]+ [a-z]+) |`noetl ([a-z]+ [a-z]+) ", text, re.MULTILINE)
    known = {name for name, _ in every()}

    assert len(shown) == 5
    assert [one or other for one, other in shown if (one or other) not in known] == []
