"""What the model is told of background jobs that have ended."""

from __future__ import annotations

from harness.agent.messages.job_exits import job_exit_notice
from harness.agent.messages.situation import RunningJobs
from harness.toolkit.events import JobExited, JobStarted


def exited(host: str, code: int | None, job_id: str = "7") -> JobExited:
    return JobExited(job_id=job_id, exit_code=code, host=host)


def test_one_target_needs_no_host() -> None:
    text = "[harness: the background job 7 has ended, with exit code 0. Read its output with its job id.]"
    assert job_exit_notice([exited("", 0)]) == text


def test_equal_ends_of_hosts_are_one_sentence() -> None:
    ends = [exited("web1", 0), exited("web2", 0), exited("web3", 1, "9"), exited("web4", 0, "8")]
    assert job_exit_notice(ends) == (
        "[harness: 3 background jobs on 3 hosts have ended, with exit code 0: 7 on web[1-2], 8 on web4."
        " Read an output with the job id and the host."
        " the background job 9 on web3 has ended, with exit code 1. Read its output with its job id and its host.]"
    )


def test_a_thousand_hosts_are_a_short_notice() -> None:
    ends = [exited(f"web{number}", None, str(number * 7)) for number in range(1_000)]
    notice = job_exit_notice(ends)
    assert "1000 background jobs on 1000 hosts have ended, with an unknown exit code" in notice
    assert len(notice) < 1_300


def test_equal_jobs_run_on_several_hosts_under_one_id() -> None:
    jobs = RunningJobs()
    for host in ("web1", "web2", ""):
        jobs.heard(JobStarted(job_id="7", command="make", host=host))
    assert jobs.now() == (("7", "make"), ("7 on web[1-2]", "make"))
    jobs.heard(exited("web1", 0))
    jobs.heard(exited("", 0))
    assert jobs.now() == (("7 on web2", "make"),)
