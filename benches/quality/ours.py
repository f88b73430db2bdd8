"""What the program makes of a stream: from a table (`criticd fit`, `criticd value`), and live, row by row (`serve`)."""

import hashlib
import json
import resource
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import scores
from streams import file_name, keep

VERSION = 6
"""Of what is kept of a fit: raise it with every change of that."""

LIVE_ROWS = (20_000, 100_000)
LIVE_STREAMS = ("nav", "rmdp200-2d", "CartPole", "Pendulum")
ROWS_PER_SECOND = 3000
ROWS_AT_ONCE = 30


class Failed(Exception):
    """The program ended with an error; the message is what it said."""


def run(*command):
    """What a command prints, read as JSON."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command[:2]))}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def processor_seconds():
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def number(document, key):
    """The first number under a key anywhere in a JSON document, or None."""
    if isinstance(document, dict):
        if isinstance(document.get(key), (int, float)):
            return document[key]
        document = list(document.values())
    if isinstance(document, list):
        for part in document:
            found = number(part, key)
            if found is not None:
                return found
    return None


def chosen(model):
    """What model selection has chosen, from the JSON of `fit` or of a snapshot."""
    kernel, noise = model["kernel"], model["noise"]["variance"]
    rho = number(model, "rho")
    candidates = model.get("search", {}).get("selection", {}).get("candidates", [])
    scored = [candidate for candidate in candidates if candidate.get("score") is not None]
    return {
        "candidate": min(scored, key=lambda candidate: candidate["score"])["name"] if scored else None,
        "kernel": kernel.get("kind"),
        "profile": kernel.get("profile", "gaussian"),
        "lambda": number(model, "lambda"),
        "rho": noise / kernel["signal_variance"] if rho is None else rho,
        "signal_variance": kernel["signal_variance"],
        "bias_variance": kernel.get("bias_variance"),
        "noise_variance": noise,
        "relevance": kernel.get("relevance"),
        "kinds": kernel.get("kinds"),
        "columns": len(kernel.get("columns") or ()),
        "dictionary": model.get("dictionary_size"),
        "out_of_time": number(model, "out_of_time"),
        "gate": number(model, "gate"),
    }


def answers(binary, model, states, noise_variance):
    """Mean and covariance of V, variance of the return, and how far V is known, at states (k, D), as lists.

    A program that does not tell the variance of the return is taken at its word that noise is the same everywhere.
    """
    given = run(binary, "value", model, states, "--json", "--covariance")
    variance = given["variance"]
    returns = given.get("return_variance")
    return {
        "mean": given["mean"],
        "variance": variance,
        "covariance": given["covariance"],
        "return_variance": returns or [v + noise_variance for v in variance],
        "return_variance_given": returns is not None,
        "known": given.get("known"),
    }


def table(stream, path):
    np.savez(
        path,
        states=stream.states,
        next_states=stream.next_states,
        rewards=stream.rewards,
        terminated=stream.terminated,
        truncated=stream.truncated,
    )


def far(stream):
    """States (k, D) a thousand deviations of each variable away from all rows, on either side of each."""
    scale = np.where(stream.states.std(axis=0) > 0.0, stream.states.std(axis=0), 1.0)
    sides = np.random.default_rng(0).choice([-1.0, 1.0], stream.test_states.shape)
    return stream.states.mean(axis=0) + 1000.0 * scale * sides


def fit(binary, stream, arguments):
    """`answers` at the held-out states after `criticd fit`, what was chosen, and the processor time of the fit."""
    with tempfile.TemporaryDirectory(prefix="criticd-quality-") as folder:
        folder = Path(folder)
        table(stream, folder / "rows.npz")
        np.savez(folder / "states.npz", states=stream.test_states)
        np.savez(folder / "far.npz", states=far(stream))
        model = folder / "model.msgpack"
        before, began = processor_seconds(), time.monotonic()
        options = ["--discount", repr(stream.discount), "--threads", "1", "--out", model, "--json"]
        fitted = run(binary, "fit", folder / "rows.npz", *options, *arguments)
        seconds, elapsed = processor_seconds() - before, time.monotonic() - began
        result = answers(binary, model, folder / "states.npz", fitted["noise"]["variance"])
        result["known_far"] = run(binary, "value", model, folder / "far.npz", "--json").get("known")
    return {**result, "chosen": chosen(fitted), "seconds": seconds, "elapsed": elapsed}


def period_off(found, period):
    """How far the period that a fit has found is from this one, in parts of it; None where it found none."""
    kind = (found["kinds"] or [""])[0]
    return abs(float(kind.removeprefix("periodic:")) / period - 1.0) if kind.startswith("periodic:") else None


def identity(binary, arguments):
    """A name for what a binary gives with these arguments."""
    digest = hashlib.sha256(Path(binary).read_bytes())
    digest.update(json.dumps([VERSION, *arguments]).encode())
    return digest.hexdigest()[:16]


def learn(cache, identity, binary, arguments, name, seed, stream):
    """As `fit`, kept in the folder `cache`: a run that was interrupted goes on where it was."""
    path = Path(cache) / "ours" / identity / f"{file_name(name, seed)}.json"
    if path.exists():
        return json.loads(path.read_text())
    result = fit(binary, stream, arguments)
    keep(path, lambda partial: partial.write_text(json.dumps(result)))
    return result


def judged(result, stream):
    """The figures of `answers`: error; coverage of V, its differences, and returns; log density; what `known` tells."""
    mean, variance, returns = (np.array(result[key]) for key in ("mean", "variance", "return_variance"))
    covariance = np.array(result["covariance"])
    known, far_away = (None if result.get(key) is None else np.array(result[key]) for key in ("known", "known_far"))
    return {
        "nrmse": scores.nrmse(mean, stream),
        "coverage": scores.covered(mean, variance, stream),
        "differences_covered": scores.differences_covered(mean, covariance, stream),
        "returns_covered": scores.returns_covered(mean, returns, stream),
        "log_density": scores.log_density(mean, returns, stream),
        "known": None if known is None else float(np.mean(known)),
        "warned": None if known is None else scores.warned(known, mean, stream),
        "warned_at_best": None if known is None else scores.warned_at_best(known, variance),
        "known_far": None if far_away is None else float(far_away.max()),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Live


class Watch:
    """Asks a daemon five times a second for the values of the held-out states, to see what each adoption does.

    `adoptions` are of a model that came after another one: the rows learned, and the error of the last answer of
    the old model and of the first one of the new.
    """

    def __init__(self, daemon, stream):
        self.adoptions, self.error = [], None
        self._client, self._stream = daemon.client(), stream
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self):
        from criticd import CriticdError, Refused

        last = None
        while not self._end.wait(0.2):
            try:
                answer = self._client.value(self._stream.test_states)
            except Refused:
                # There is no model yet.
                continue
            except CriticdError as error:
                self.error = str(error)
                continue
            error = scores.nrmse(answer.mean, self._stream)
            if last is not None and answer.generation != last[0]:
                change = {"generation": answer.generation, "offset": answer.offset, "before": last[1], "after": error}
                self.adoptions.append(change)
            last = answer.generation, error

    def close(self):
        self._end.set()
        self._thread.join()
        self._client.close()


def snapshot(binary, daemon, stream):
    """The figures of the model that the daemon has now, evaluated by the program from a file."""
    with tempfile.TemporaryDirectory(prefix="criticd-quality-") as folder:
        model, states = Path(folder) / "model.msgpack", Path(folder) / "states.npz"
        np.savez(states, states=stream.test_states)
        command = [str(binary), "snapshot", "--control", daemon.endpoints.control, "--timeout", "60"]
        subprocess.run([*command, "--out", str(model)], check=True, capture_output=True)
        about = run(*command, "--json")
        result = answers(binary, model, states, about["noise"]["variance"])
    figures = judged(result, stream)
    size = len(about["dictionary"])
    return {**figures, "generation": about["generation"], "offset": about["offset"], "dictionary": size}


def wait_until(condition, seconds, pause=0.1):
    """Whether a condition has come true within the time; it is looked at every `pause` seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def send(sender, stream, rows, rate):
    """Rows in their order at no more than `rate` a second."""
    began = time.monotonic()
    for start in range(rows.start, rows.stop, ROWS_AT_ONCE):
        part = slice(start, min(start + ROWS_AT_ONCE, rows.stop))
        sender.send_batch(
            stream.states[part],
            stream.rewards[part],
            stream.next_states[part],
            terminated=stream.terminated[part],
            truncated=stream.truncated[part],
        )
        ahead = (part.stop - rows.start) / rate - (time.monotonic() - began)
        if ahead > 0.0:
            time.sleep(ahead)
    if not sender.flush(timeout_s=120.0):
        raise Failed("rows were not acknowledged within two minutes")


def live(binary, stream, settings, rate=ROWS_PER_SECOND):
    """A daemon with its defaults, but for the discount and `settings`, while the rows of a stream arrive.

    The model is judged once 20 000 and 100 000 rows are learned ("20000", "100000"), when the refit that then runs has
    ended ("settled"), and after one more that was asked for ("optimised").
    """
    from criticd.testing import Daemon

    states = {}
    began = processor_seconds()
    with Daemon(f"critic.discount={stream.discount!r}", *settings, program=binary, timeout_s=60.0) as daemon:
        client, watch = daemon.client(timeout_s=60.0), Watch(daemon, stream)
        try:

            def critic():
                return client.status()["critics"][0]

            with daemon.sender(reliable=True, stream="robot") as sender:
                sent = 0
                for rows in LIVE_ROWS:
                    send(sender, stream, range(sent, rows), rate)
                    sent = rows
                    if not wait_until(lambda rows=rows: critic()["learned"] >= rows, 120.0):
                        raise Failed(f"{critic()['learned']} of {rows} rows were learned")
                    states[str(rows)] = snapshot(binary, daemon, stream)
            wait_until(lambda: not critic()["refit"]["running"], 300.0)
            states["settled"] = snapshot(binary, daemon, stream)
            outcome = client.refit(wait=True, timeout_s=600.0)
            # The last answer of the old model and the first one of the new are the watch's.
            time.sleep(1.0)
            states["optimised"] = snapshot(binary, daemon, stream)
            refits = critic()["refit"]
        finally:
            watch.close()
            client.close()
    return {
        "states": states,
        "adoptions": watch.adoptions,
        "refits": {key: refits[key] for key in ("started", "adopted", "rejected", "failed")},
        "optimise": {"outcome": outcome.outcome, "reason": outcome.reason},
        "seconds": processor_seconds() - began,
    }
