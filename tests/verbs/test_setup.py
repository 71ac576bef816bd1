"""`railwright setup --wheels`: a folder without wheels. tests/packaging has one with another wheel."""

from __future__ import annotations


def test_a_folder_without_wheels_is_refused_with_the_way_to_fill_it(answer, tmp_path) -> None:
    done = answer("setup", "nixl", "--wheels", str(tmp_path))
    assert done.status == 2
    assert f"--wheels must name a folder with wheels, got {tmp_path}" in done.message()
    assert "pip download --no-deps --dest FOLDER nixl-cu13==" in done.message()
