"""SSH signatures of a bundle's root, made and checked by `ssh-keygen -Y`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from lobench.core.errors import UsageError
from lobench.core.wording import headline
from lobench.engine.store.bundle import SIGNATURE_NAME, ResultBundle

__all__ = ["sign", "signer"]

_NAMESPACE = "lobench"


def sign(root: str, key: Path) -> bytes:
    """Returns the signature of a root, made by `ssh-keygen -Y sign`.

    Args:
      root: Root of a bundle.
      key: Path of a private SSH key.
    Raises:
      UsageError: Signing failed.
    """
    command = ["ssh-keygen", "-Y", "sign", "-n", _NAMESPACE, "-f", str(key)]
    try:
        process = subprocess.run(command, input=root.encode(), capture_output=True, timeout=600)
    except OSError as error:
        raise UsageError("cannot sign", where=str(key), got=headline(error), next_step="is OpenSSH there?") from error
    if process.returncode:
        message = process.stderr.decode(errors="replace").strip().splitlines()
        got = message[-1] if message else f"status {process.returncode}"
        raise UsageError("cannot sign", where=str(key), got=got)
    return process.stdout


def signer(bundle: ResultBundle, allowed: Path | None) -> str:
    """Returns the signer of a bundle's root; "" if it is not signed.

    Args:
      bundle: Bundle to check.
      allowed: File of allowed signers, in the format of `ssh-keygen`. None: any key is accepted, and the key is
        returned.
    Raises:
      UsageError: The signature is invalid, or is not by an allowed signer.
    """
    if SIGNATURE_NAME not in bundle.member_names:
        if allowed is not None:
            raise UsageError("the bundle is not signed", where=str(bundle.path))
        return ""
    with tempfile.TemporaryDirectory(prefix="lobench-") as folder:
        path = Path(folder) / "signature"
        path.write_bytes(bundle.read(SIGNATURE_NAME))
        command = ["ssh-keygen", "-Y"]
        if allowed is None:
            command += ["check-novalidate", "-n", _NAMESPACE, "-s", str(path)]
        else:
            principals = _run_ssh_keygen(
                ["ssh-keygen", "-Y", "find-principals", "-s", str(path), "-f", str(allowed)], b""
            )
            principal = principals.splitlines()[0] if principals else ""
            command += ["verify", "-n", _NAMESPACE, "-s", str(path), "-f", str(allowed), "-I", principal]
        message = _run_ssh_keygen(command, bundle.root.encode())
    if not message.startswith("Good"):
        raise UsageError("the signature does not fit", where=str(bundle.path), got=message or "no allowed signer")
    return message.partition(" for ")[2] or message


def _run_ssh_keygen(command: list[str], text: bytes) -> str:
    try:
        process = subprocess.run(command, input=text, capture_output=True, timeout=60)
    except OSError as error:
        raise UsageError("cannot check the signature", got=headline(error), next_step="is OpenSSH there?") from error
    lines = (process.stdout or process.stderr).decode(errors="replace").strip().splitlines()
    return lines[0] if lines else ""
