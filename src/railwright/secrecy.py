"""Secrets in texts: credentials that variables of measured libraries, commands and error messages may hold."""

from __future__ import annotations

import re

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|(?:ACCESS|ACCOUNT|API|ENCRYPTION|PRIVATE|SHARED|SIGNING)_?KEY"
    r"|(?:^|_)(?:AUTH|COOKIE|KEYS?|PASS|PWD)(?:_|$)",
    re.IGNORECASE,
)
"""The words of a variable's name that make its value a secret. A partition key (PKEY) is none."""
_JOB_KEYS = frozenset({"OMPI_MCA_orte_precondition_transports", "OMPI_MCA_ess_base_jobid_key"})
_BARE_USER = re.compile(r"(?<![^\s,;=])[^\s,;=@/\"]{1,256}:[^\s,;@/\"]{1,1024}@(?=[\w\[])")
_WORD = r"(?:password|passwd|passphrase|pwd|secret|credentials?)(?:[_-]?key)?"
_KEY_OF = r"(?:access|account|api|auth|private|refresh|secret|session|shared|signing|storage)[_-]?"
_IS = r"\s?[=:]\s?(?:\\{0,4}[\"'])?"
_IN_QUOTES = r"\\{0,4}[\"']\s?:\s?\\{0,4}[\"']"
"""The sign between a name and its value, and the same in JSON or Python, also within a string of JSON."""
_NO_COUNT = r"(?!\d{0,12}(?:[\s&\"',;\\]|$))"
_VALUE = r"[^\s&\"',;\\]"
_PATTERNS = (
    (re.compile(r"(?<=://)[^\s/@\"',;]{1,1024}@"), f"{HIDDEN}@"),
    (re.compile(rf"({_WORD}(?:{_IS}|{_IN_QUOTES})){_VALUE}+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(rf"(?<![a-zA-Z])((?:{_KEY_OF})?(?:token|key){_IS}|(?:{_KEY_OF}key|(?:{_KEY_OF})?token){_IN_QUOTES})"
                rf"{_NO_COUNT}{_VALUE}{{6,}}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(rf"((?<!\S)--?(?:[\w-]{{0,40}}-)?(?:password|passwd|passphrase|secret|token|{_KEY_OF}key)\s)"
                rf"(?!-){_VALUE}+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(rf"([?&](?:sig|[\w-]{{0,40}}(?:credential|signature))=){_VALUE}+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\b(Bearer|Basic) [\w+/.=~-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"), HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), HIDDEN),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|nvapi-|sk-|xox[abprs]-)[\w-]{16,}"), HIDDEN),
    (re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^\"]{0,8192}"), HIDDEN),
)  # fmt: skip


def hide_secrets(text: str) -> str:
    """Replace the user and password of URLs, and keys and tokens of known forms, also in JSON."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def hide_value(name: str, value: str) -> str:
    """Return the value of a variable without secrets; of one whose name says that it holds one, only asterisks."""
    if value and (name in _JOB_KEYS or _SECRET_NAME.search(name)):
        return HIDDEN
    return hide_secrets(_BARE_USER.sub(f"{HIDDEN}@", value))
