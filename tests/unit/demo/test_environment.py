"""What the demo's processes see of its reader's environment."""

from outlast.demo import story_processes


def test_the_demos_processes_see_no_setting_of_their_reader() -> None:
    """No key, no upstream, no port, no Temporal of his own; everything else."""
    theirs = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://x", "OUTLAST_PORT": "9", "TEMPORAL_ADDRESS": "x:1"}
    assert story_processes._environment({**theirs, "PATH": "/bin", "HOME": "/"}) == {"PATH": "/bin", "HOME": "/"}
