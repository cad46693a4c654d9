"""Trains a small network on made-up data, on a GPU, on the CPU, or without PyTorch in plain Python.

It saves a checkpoint after each epoch, ends at SIGTERM, and goes on from its checkpoint when it is started again:

    python train.py --lr 0.1 --width 32 --keep checkpoints --results results
"""

import argparse
import json
import math
import os
import random
import signal
import sys
import time
from pathlib import Path

try:
    import torch
except ImportError:
    torch = None

POINTS, BATCH = 512, 32


def target(x):
    """What the network is to learn."""
    return math.sin(3 * x[0]) * math.cos(2 * x[1])


def data(seed):
    """Points and their values; the same for the same seed."""
    chance = random.Random(seed)
    points = [(chance.uniform(-1, 1), chance.uniform(-1, 1)) for _ in range(POINTS)]
    return points, [target(point) for point in points]


class Torch:
    """A network with one hidden layer, by PyTorch."""

    def __init__(self, width, lr, seed):
        torch.manual_seed(seed)
        torch.set_num_threads(1)  # of such small steps, several would only wait for each other
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.net = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
        self.net.to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=0.9)
        points, values = data(seed)
        self.points = torch.tensor(points, device=self.device)
        self.values = torch.tensor(values, device=self.device)[:, None]

    def epoch(self):
        """Go once through all points; returns the mean loss."""
        total = 0.0
        for chosen in torch.randperm(POINTS, device=self.device).split(BATCH):
            loss = torch.nn.functional.mse_loss(self.net(self.points[chosen]), self.values[chosen])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(chosen)
        return total / POINTS

    def save(self, file):
        torch.save({"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}, file)

    def load(self, file):
        saved = torch.load(file, map_location=self.device, weights_only=True)
        self.net.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])


class Plain:
    """The same network in plain Python: for a first try on any image."""

    device = "python"

    def __init__(self, width, lr, seed):
        chance = random.Random(seed)
        self.lr = lr
        self.hidden = [[chance.uniform(-1, 1) for _ in range(3)] for _ in range(width)]
        self.out = [chance.uniform(-1, 1) / width for _ in range(width + 1)]
        self.points, self.values = data(seed)

    def epoch(self):
        """Go once through all points; returns the mean loss."""
        total = 0.0
        for (a, b), value in zip(self.points, self.values, strict=True):
            found = [math.tanh(w[0] * a + w[1] * b + w[2]) for w in self.hidden]
            wrong = sum(w * f for w, f in zip(self.out[:-1], found, strict=True)) + self.out[-1] - value
            total += wrong * wrong
            step = self.lr * wrong
            for number, f in enumerate(found):
                back = step * self.out[number] * (1 - f * f)
                self.out[number] -= step * f
                hidden = self.hidden[number]
                hidden[0] -= back * a
                hidden[1] -= back * b
                hidden[2] -= back
            self.out[-1] -= step
        return total / POINTS

    def save(self, file):
        Path(file).write_text(json.dumps([self.hidden, self.out]))

    def load(self, file):
        self.hidden, self.out = json.loads(Path(file).read_text())


def written(file, write):
    """Write a file under another name first, so that a kill leaves the old one or the new one."""
    new = file.with_name(f".{file.name}")
    write(new)
    os.replace(new, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=32, help="size of the hidden layer")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each epoch, to have time to stop it")
    parser.add_argument("--keep", type=Path, default="checkpoints", help="folder of checkpoints")
    parser.add_argument("--results", type=Path, default="results", help="folder of results")
    options = parser.parse_args()

    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append("SIGTERM"))
    name = f"lr={options.lr:g}-width={options.width}-seed={options.seed}"
    model = (Torch if torch else Plain)(options.width, options.lr, options.seed)
    weights, progress = options.keep / f"{name}.{model.device}", options.keep / f"{name}.json"
    options.keep.mkdir(parents=True, exist_ok=True)
    done, loss, seconds = 0, None, 0.0
    if progress.exists() and weights.exists():
        done, loss, seconds = json.loads(progress.read_text())
        model.load(weights)
    print(f"{name} on {model.device}: " + (f"going on after epoch {done}" if done else "starting"), flush=True)

    began = time.monotonic() - seconds
    while done < options.epochs and not stopping:
        loss = model.epoch()
        done += 1
        written(weights, model.save)
        state = [done, loss, time.monotonic() - began]
        written(progress, lambda file, state=state: file.write_text(json.dumps(state)))
        print(f"epoch {done}: loss {loss:.4f}", flush=True)
        time.sleep(options.pause)
    if done < options.epochs:
        print(f"{stopping[0]}: saved after epoch {done}", flush=True)
        sys.exit(128 + signal.SIGTERM)

    options.results.mkdir(parents=True, exist_ok=True)
    loss = loss if math.isfinite(loss) else None  # it has diverged
    result = {"lr": options.lr, "width": options.width, "seed": options.seed, "loss": loss and round(loss, 4)}
    result |= {"epochs": done, "seconds": round(time.monotonic() - began, 1), "device": model.device}
    written(options.results / f"{name}.json", lambda file: file.write_text(json.dumps(result)))
    print(f"loss {loss}")


if __name__ == "__main__":
    main()
