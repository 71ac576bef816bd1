"""Requests to Kubernetes, and the parsing of its answers and logs, without a cluster."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random

import msgspec
import pytest

from railwright.errors import UsageError
from railwright.launch.followed import FollowedFolder
from railwright.launch.frames import FrameReader, FrameWriter
from railwright.launch.kubernetes.manifests import PRIVILEGES, NamedJob
from railwright.launch.kubernetes.pod import format_settings, ssh_config
from railwright.launch.kubernetes.pods import Events, Pod, Pods, sort_pods
from railwright.launch.kubernetes.received import Received
from railwright.launch.kubernetes.wanted import KubernetesRequest, describe_cost
from railwright.results.records import End

RUNTIME_LINE = 16 * 1024
"""A container's runtime cuts longer lines."""


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


RECORDS = [("results.jsonl", b'{"record":"run"}'), ("results.jsonl", noise(50_000)), ("hosts/n-1/results.jsonl", b"x"),
           ("results.jsonl", noise(7_000)), ("cluster.json", b"y"),
           ("between/results.jsonl", b"z"), ("results.jsonl", b"{}")]  # fmt: skip


def log_of(records=RECORDS, status: int | None = 0) -> list[str]:
    writer = FrameWriter()
    lines = [line for file, record in records for line in writer.lines(file, record)]
    return lines + ([] if status is None else list(writer.end(status)))


def test_records_comewhole_through_lines_that_no_runtime_cuts():
    reader, found = FrameReader(), []
    for line in log_of():
        assert len(line) < 4096 < RUNTIME_LINE
        assert reader.read(line)
        found += reader.records()  # after every line
    assert found == RECORDS
    assert (reader.status, reader.is_complete, reader.describe_loss()) == (0, True, "")
    assert not reader.read("done: mpi_latency (1 launch)")
    assert FrameReader().describe_loss() == "the end is missing"


def test_lines_that_come_twice_or_late_are_taken_once():
    lines = log_of(status=3)
    shuffled = lines * 2
    random.Random(7).shuffle(shuffled)
    reader, found = FrameReader(), []
    for line in shuffled:
        reader.read(line)
        found += reader.records()
    assert found == RECORDS  # in order, whatever the order of the lines
    assert (reader.status, reader.is_complete) == (3, True)


def test_what_rotation_took_is_counted_and_all_else_is_kept():
    lines = log_of()
    for first in range(len(lines)):
        for after in range(first + 1, len(lines) + 1):
            reader, found = FrameReader(), []
            for line in lines[:first] + lines[after:]:
                reader.read(line)
                found += reader.records()
            found += reader.records_after_gaps()
            assert not reader.is_complete
            assert reader.describe_loss()
            assert [record for record in RECORDS if record in found] == found, (first, after)
            hit = sum(any(line in lines[first:after] for line in one) for one in grouped(lines))
            assert len(found) == len(RECORDS) - hit, (first, after)


def grouped(lines: list[str]) -> list[list[str]]:
    """The lines of each record of `RECORDS`."""
    found, at = [], 0
    for _ in RECORDS:
        begin = at
        while lines[at].split(":")[3] not in "=>":
            at += 1
        at += 1
        found.append(lines[begin:at])
    return found


def test_lines_that_were_cut_or_forged_are_no_records_and_no_text():
    lines = log_of()
    reader = FrameReader()
    for line in lines:
        reader.read(line if line != lines[3] else line[:1000])
    found = [*reader.records(), *reader.records_after_gaps()]
    assert found == [record for record in RECORDS if len(record[1]) < 50_000]
    assert reader.damaged == 1
    assert reader.describe_loss() == "1 of the records were damaged"
    for forged in ("railwright-frame:0:../../etc/passwd:=:AAAA", "railwright-frame:x:end:=:", "railwright-frame:"):
        reader = FrameReader()
        assert reader.read(forged)
        assert list(reader.records()) == []
    assert FrameReader().read(f"railwright-frame:0:end:=:{base64.b64encode(b'no zlib').decode()}")


def test_pieces_of_a_bomb_are_not_unpacked():
    reader = FrameReader()
    for line in FrameWriter().lines("results.jsonl", bytes(70 * 2**20)):
        reader.read(line)
    assert list(reader.records()) == []
    assert reader.damaged == 1


def test_the_first_pod_follows_files_as_they_grow(tmp_path):
    followed = FollowedFolder(tmp_path)
    assert list(followed.records()) == []
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"one\ntw")
    assert list(followed.records()) == [("results.jsonl", b"one")]
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    (tmp_path / "hosts/n1").mkdir(parents=True)
    (tmp_path / "hosts/n1/results.jsonl").write_bytes(b"there\n")
    assert sorted(followed.records()) == [("hosts/n1/results.jsonl", b"there"), ("results.jsonl", b"three"),
                                          ("results.jsonl", b"two")]  # fmt: skip
    assert list(followed.records()) == []


def test_what_came_is_marked_where_it_is_notwhole(tmp_path):
    (tmp_path / "results.jsonl").write_text("older\n")
    received = Received(tmp_path, ("railwright", "run"), dt.datetime.now)
    assert not received.has_results
    received.keep("results.jsonl", b'{"record":"result"}')
    received.keep("hosts/n1/results.jsonl", whole := b'{"record":"end","finished_at":""}')
    received.mark_incomplete("the pod a was killed", gaps=False)
    assert (tmp_path / "hosts/n1/results.jsonl").read_bytes().splitlines() == [whole]
    first, end = (tmp_path / "results.jsonl").read_bytes().splitlines()
    assert first == b'{"record":"result"}'
    assert msgspec.json.decode(end, type=End).interrupted == "the pod a was killed"
    assert (tmp_path / "results.previous.jsonl").read_text() == "older\n"


def pod(**status) -> Pod:
    told = {"metadata": {"name": "rw-0-x"}, "spec": {"nodeName": "n1"}, "status": status}
    return msgspec.json.decode(json.dumps(told), type=Pod)


def test_why_a_pod_does_not_run_is_told_in_kubernetes_words():
    said = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    unschedulable = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}]
    assert pod(phase="Pending", conditions=unschedulable).explain_wait() == (f"Unschedulable: {said}", False)
    for reason, hopeless in (("ImagePullBackOff", True), ("ErrImageNeverPull", True), ("ContainerCreating", False)):
        states = [{"state": {"waiting": {"reason": reason, "message": "m"}}}]
        assert pod(phase="Pending", containerStatuses=states).explain_wait() == (f"{reason}: m", hopeless)
    running = [{"state": {"running": {"startedAt": "now"}}}]
    assert pod(phase="Running", containerStatuses=running).explain_wait() == ("", False)
    assert pod(phase="Running", containerStatuses=running).has_run


def test_why_a_pod_died_is_told_with_the_reason_that_kubernetes_gives():
    ended = [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]
    assert pod(phase="Failed", containerStatuses=ended).explain_death() == \
        "OOMKilled, exit status 137 (SIGKILL in its child)"  # fmt: skip
    assert pod(phase="Failed", reason="Evicted", message="low on memory").explain_death() == "Evicted: low on memory"
    taken = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for a"}]
    assert pod(phase="Running", conditions=taken).explain_death() == "PreemptionByScheduler: for a"
    completed = pod(phase="Succeeded", containerStatuses=[{"state": {"terminated": {"reason": "Completed"}}}])
    assert completed.explain_death() == ""
    assert pod(phase="Failed").explain_death() == "failed without a reason"
    assert pod(phase="Running").explain_death() == ""


def test_the_first_pod_is_known_in_both_kinds_of_jobs():
    told = [{"name": "b", "annotations": {"batch.kubernetes.io/job-completion-index": "1"}},
            {"name": "c", "annotations": {"batch.kubernetes.io/job-completion-index": "0"}}]  # fmt: skip
    pods = msgspec.json.decode(json.dumps({"items": [{"metadata": one} for one in told]}), type=Pods)
    assert [one.name for one in sort_pods(pods.items)] == ["c", "b"]
    told = [{"name": "w", "labels": {"railwright.dev/role": "host"}},
            {"name": "z", "labels": {"railwright.dev/role": "lead"}}]  # fmt: skip
    pods = msgspec.json.decode(json.dumps({"items": [{"metadata": one} for one in told]}), type=Pods)
    assert [one.is_lead for one in sort_pods(pods.items)] == [True, False]


def test_complaints_are_those_about_the_job_and_what_it_made():
    told = [("rw-0-x", "FailedMount", "no secret"), ("rw", "FailedCreate", "exceeded quota"), ("rw2", "Other", "no")]
    items = [{"involvedObject": {"kind": "Pod", "name": name}, "reason": reason, "message": message, "type": "Warning"}
             for name, reason, message in told]  # fmt: skip
    events = msgspec.json.decode(json.dumps({"items": items}), type=Events)
    assert events.find_warning("rw") == "FailedCreate: exceeded quota"
    assert events.find_warning("r") == ""


ASKED = KubernetesRequest(3, "railwright:1", 8, "team-a", 8, ("nvidia.com/mlnx_vf=1",), ("rail1", "infra/rail2@net2"),
               ("gpu=h100",), environment={"NCCL_IB_HCA": "mlx5"})  # fmt: skip


def test_an_indexed_job_asks_for_what_was_wanted_and_ends_whoever_is_gone():
    named = NamedJob(ASKED, "rw", "job", ("run", "mpi_latency"), 600.0)
    job = json.loads(json.dumps(named.job()))
    spec, template = job["spec"], job["spec"]["template"]
    assert named.pods == ("rw-0.rw", "rw-1.rw", "rw-2.rw")
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (3, 3, "Indexed")
    assert (spec["activeDeadlineSeconds"], spec["backoffLimitPerIndex"]) == (600, 0)
    assert spec["ttlSecondsAfterFinished"] > 0
    container = template["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "nvidia.com/mlnx_vf": "1"}
    assert template["metadata"]["annotations"] == {"k8s.v1.cni.cncf.io/networks": "rail1,infra/rail2@net2"}
    assert template["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert template["spec"]["subdomain"] == "rw"
    assert template["spec"]["automountServiceAccountToken"] is False
    assert {"name": "NCCL_IB_HCA", "value": "mlx5"} in container["env"]
    beside = named.owned_objects("uid", b"private", b"public")["items"]
    for one in beside:
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "rw", "uid")
    assert beside[0]["spec"]["clusterIP"] == "None"
    assert base64.b64encode(b"private").decode() not in json.dumps(job)


def test_an_mpijob_has_the_first_pod_as_a_worker():
    named = NamedJob(ASKED, "rw", "mpijob", ("run", "mpi_latency"), 600.0)
    spec = named.job()["spec"]
    assert named.pods == ("rw-launcher.rw", "rw-worker-0.rw", "rw-worker-1.rw")
    assert spec["runLauncherAsWorker"] is True
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    assert spec["runPolicy"]["activeDeadlineSeconds"] == 600
    for part, role in (("Launcher", "lead"), ("Worker", "host")):
        template = spec["mpiReplicaSpecs"][part]["template"]
        assert template["metadata"]["labels"]["railwright.dev/role"] == role
        assert template["spec"]["containers"][0]["command"][-1] == role
        assert [one["name"] for one in template["spec"]["volumes"]] == ["work", "tmp", "shared-memory"]


def test_pods_have_no_privileges_but_those_that_are_named():
    plain = NamedJob(KubernetesRequest(2, "i"), "rw", "job", (), 600.0).job()["spec"]["template"]["spec"]
    assert plain["securityContext"]["runAsNonRoot"] is True
    assert plain["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    rdma = NamedJob(KubernetesRequest(2, "i", rdma=("nic=1",)), "rw", "job", (), 600.0).job()["spec"]["template"][
        "spec"
    ]
    assert rdma["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": list(PRIVILEGES)}
    for spec in (plain, rdma):
        assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
        assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
        assert "privileged" not in json.dumps(spec)
        assert "hostPath" not in json.dumps(spec)


def test_words_that_kubernetes_could_misread_are_refused():
    for options in ({"namespace": "-n"}, {"namespace": "Team"}, {"image": "--x"}, {"image": "a b"}, {"rdma": ("nic",)},
                    {"rdma": ("nic=0",)}, {"networks": ("rail1,rail2",)}, {"networks": ('{"a":1}',)},
                    {"node_selector": ("gpu",)}, {"node_selector": ("gpu=a b",)}):  # fmt: skip
        with pytest.raises(UsageError, match="must be like"):
            KubernetesRequest(**({"nodes": 2, "image": "i"} | options))


def test_the_plan_tells_gpu_hours():
    said = describe_cost(ASKED, "job", "team-a", 1800.0, 600.0)
    assert said.startswith("Kubernetes: an Indexed Job of 3 pods on as many nodes, in namespace team-a, for at most 30")
    assert said.endswith("at most 12 GPU hours (3 x 8 GPUs), 4 by the plan")
    assert describe_cost(KubernetesRequest(2, "i"), "mpijob", "n", 1800.0, 60.0).endswith("1 pod hours, no GPU hours")
    assert KubernetesRequest(2, "i", limit_s=61.0, start_within_s=60.0).choose_limit(5.0) == 180.0


def test_ssh_reaches_pods_under_the_names_of_their_nodes(tmp_path):
    text = ssh_config(tmp_path, "railwright", {"gpu-1.cluster": "rw-0.rw"})
    assert text.startswith("Host gpu-1.cluster\n  HostName rw-0.rw\nHost *\n")
    assert "StrictHostKeyChecking yes" in text


def test_sessions_of_ssh_get_the_variables_that_choose_libraries_and_gpus():
    given = {
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
        "RAILWRIGHT_NODE": "gpu-1",
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1",
        "NVIDIA_VISIBLE_DEVICES": "GPU 1",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "HOME": "/tmp",
        "RAILWRIGHT_PODS": "{}",
        "UCX_TLS": 'a"b',
        "NCCL_DEBUG": "INFO\nPermitRootLogin yes",
    }
    assert format_settings(given) == (
        '"LD_LIBRARY_PATH=/usr/local/nvidia/lib64" "NCCL_IB_HCA==mlx5_0:1,mlx5_1" "NVIDIA_VISIBLE_DEVICES=GPU 1"'
        ' "RAILWRIGHT_NODE=gpu-1"'
    )


def test_a_proof_of_gpu_nodes_plans_with_gpus_where_this_machine_has_none(answer):
    some = ("prove", "--kubernetes", "--nodes", "4", "--namespace", "a", "--job-kind", "job", "--dry-run")
    plain, gpus = answer(*some), answer(*some, "--gpus-per-node", "8")
    assert "if the hosts are like hgx-h100 gpus=8 nics=0" in gpus.err
    assert "rails: a search by NCCL between 8 GPUs of each host" in gpus.err
    assert "rails: " not in plain.err
    assert limit_of(gpus.out) > limit_of(plain.out)


def limit_of(manifests: str) -> int:
    """The time limit of the job in the output of a dry run."""
    return json.loads(manifests.partition("\n---\n")[0])["spec"]["activeDeadlineSeconds"]


def test_a_dry_run_shows_the_manifests_and_makes_nothing(answer):
    done = answer("run", "mpi_latency", "--kubernetes", "--nodes", "2", "--namespace", "team-a", "--job-kind", "job",
                  "--gpus-per-node", "8", "--dry-run", "-o", "mpi_latency.sizes=8")  # fmt: skip
    assert done.status == 0
    assert "at most 4 GPU hours (2 x 8 GPUs)" in done.err
    job, beside = (json.loads(text) for text in done.out.split("\n---\n"))
    assert (job["kind"], job["metadata"]["namespace"]) == ("Job", "team-a")
    plan = json.loads(next(one["value"] for one in job["spec"]["template"]["spec"]["containers"][0]["env"]
                           if one["name"] == "RAILWRIGHT_PODS"))  # fmt: skip
    assert plan["words"][:2] == ["run", "mpi_latency"]
    assert "mpi_latency.sizes=8" in plan["words"]
    assert [one["kind"] for one in beside["items"]] == ["Service", "Secret"]


def test_a_proof_in_pods_is_the_same_job_with_other_words(answer):
    done = answer("prove", "--kubernetes", "--nodes", "3", "--namespace", "team-a", "--job-kind", "job", "--dry-run",
                  "--launches", "1")  # fmt: skip
    assert done.status == 0
    assert "plan: 3 hosts, by kubernetes" in done.err
    assert "each host measures itself, all at once" in done.err
    job = json.loads(done.out.partition("\n---\n")[0])
    plan = next(one["value"] for one in job["spec"]["template"]["spec"]["containers"][0]["env"]
                if one["name"] == "RAILWRIGHT_PODS")  # fmt: skip
    assert json.loads(plan)["words"][:5] == ["prove", "--directory", "/tmp", "--launches", "1"]
    assert "pairs: 3 rounds of disjoint pairs" in done.err
    assert "collectives: mpi_all_reduce, mpi_all_gather" in done.err
    assert "--nodes requires --kubernetes" in answer("prove", "--nodes", "2").message()
    some = ("prove", "--kubernetes", "--nodes", "3", "--namespace", "a", "--job-kind", "job", "--dry-run")
    some = (*some, "--benchmarks")
    done = answer(*some, "memory_copy,core_latency")
    assert "memory_copy,core_latency" in done.out
    done = answer(*some, "memory_copy,mpi_all_reduce", "--parts", "collectives", "--max-load", "0.9")
    assert '--parts\\", \\"collectives\\", \\"--benchmarks' in done.out or "collectives" in done.out
    assert "--resume does not work with --kubernetes" in answer(*some, "memory_copy", "--resume").message()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kubernetes",), "--kubernetes requires --nodes"),
        (("--rdma", "nic=1"), "--rdma requires --kubernetes"),
        (("--nodes", "2"), "--nodes requires --slurm or --kubernetes"),
        (("--kubernetes", "--slurm", "--nodes", "2"), "--slurm and --kubernetes exclude each other"),
        (("--kubernetes", "--nodes", "2", "--hosts", "a,b"), "--kubernetes and --hosts exclude each other"),
        (("--kubernetes", "--nodes", "2", "--mpirun", "/x"), "--mpirun and --kubernetes exclude each other"),
        (("--kubernetes", "--nodes", "2", "--partition", "gpu"), "--partition requires --slurm"),
        (
            ("--kubernetes", "--nodes", "2", "--network", "A b"),
            "--network must be like rail1, or NAMESPACE/rail1, got 'A b'",
        ),
    ],
)
def test_words_that_make_no_job_are_refused(answer, words, message):
    done = answer("run", "mpi_all_reduce", *words)
    assert done.status == 2
    assert message in done.message()
