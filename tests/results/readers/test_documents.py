"""Mails and pages of mail archives are read as the text that was pasted into them."""

import pytest
from tests.results.readers.recorded import THREADS

from railwright.results.readers.pasted.documents import extract_text


def test_quoted_printable_is_undone_where_its_signs_are() -> None:
    mail = (THREADS / "195-fio-3.26-mail-quoted-printable-raid5.txt").read_text()
    told = extract_text(mail)
    assert "read: IOPS=16.0M, BW=60.8GiB/s (65.3GB/s)(3651GiB/60003msec)" in told
    assert "=3D" not in told
    assert "bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B" in told


def test_html_is_what_a_browser_shows() -> None:
    page = (THREADS / "198-hpl-mail-html-quoted-failed.txt").read_text()
    told = extract_text(page)
    assert "<" not in told
    assert ">     ||Ax-b||_oo / ( eps * ||A||_1  * N        ) =        0.1196787\n" in told
    assert extract_text("<pre>a  b\nc</pre><p>d &lt;e&gt;</p><br>f<br>\ng") == "a  b\nc\nd <e>\n\nf\ng"


@pytest.mark.parametrize(
    "text",
    ["", "rw=3D", "bs=4k rw=read\niodepth=32 numjobs=4", "a < b and c > d\n" * 9, "NCCL_ALGO=\nNCCL_TOPO=3DTorus\n"],
)
def test_what_is_no_such_document_stays_as_it_is(text: str) -> None:
    assert extract_text(text) == text
