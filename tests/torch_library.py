"""A package of torch optimizers as people write them."""

from __future__ import annotations

from typing import Any

import torch


class Signs(torch.optim.Optimizer):
    """Counts its steps in an attribute of its own."""

    def __init__(self, params: Any, lr: float = 0.01, *, warmup: int = 3) -> None:
        super().__init__(params, {"lr": lr, "warmup": warmup})
        self.count = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.count += 1
        for group in self.param_groups:
            for param in group["params"]:
                param.add_(param.grad.sign(), alpha=-group["lr"] * min(1, self.count / group["warmup"]))


class Sharp(torch.optim.Optimizer):
    """SAM around SGD: a wrapped optimizer, and a closure."""

    def __init__(self, params: Any, rho: float = 0.05, lr: float = 0.1) -> None:
        super().__init__(params, {"rho": rho, "lr": lr})
        self.base = torch.optim.SGD(self.param_groups, lr=lr, momentum=0.9)
        self.param_groups = self.base.param_groups

    def step(self, closure: Any) -> None:
        closure()
        params = [param for group in self.param_groups for param in group["params"]]
        norm = torch.stack([param.grad.norm() for param in params]).norm()
        starts = [param.detach().clone() for param in params]
        with torch.no_grad():
            for param in params:
                param.add_(param.grad * (self.param_groups[0]["rho"] / norm))
        closure()
        with torch.no_grad():
            for param, start in zip(params, starts, strict=True):
                param.copy_(start)
        self.base.step()


class Ahead(torch.optim.Optimizer):
    """Lookahead: takes an instance of another optimizer by the usual name, and a setting with a name of lobench's."""

    def __init__(self, optimizer: Any, every: int = 5, alpha: float = 0.5, groups: int = 1) -> None:
        self.optimizer, self.every, self.alpha, self.groups, self.count = optimizer, every, alpha, groups, 0
        self.param_groups, self.state, self.defaults = optimizer.param_groups, optimizer.state, optimizer.defaults
        self.slow = [param.detach().clone() for group in self.param_groups for param in group["params"]]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.optimizer.step()
        self.count += self.groups
        if self.count % self.every == 0:
            params = [param for group in self.param_groups for param in group["params"]]
            for param, slow in zip(params, self.slow, strict=True):
                param.copy_(slow.lerp_(param, self.alpha))


class Noisy(torch.optim.SGD):
    """Draws random numbers."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                param.grad += 0.1 * torch.randn_like(param)
        super().step()


class Averaged(torch.optim.SGD):
    """Is evaluated at its average: `eval()` puts it into the parameters."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step()
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                state["sum"] = state.get("sum", torch.zeros_like(param)) + param
                state["count"] = state.get("count", 0) + 1

    @torch.no_grad()
    def eval(self) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                if "sum" in self.state[param]:
                    param.copy_(self.state[param]["sum"] / self.state[param]["count"])

    def train(self) -> None: ...


class Growing(torch.optim.SGD):
    """Remembers more and more."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                history = self.state[param].setdefault("history", [])
                history.append(param.grad.clone())
        super().step()


class Hooked(torch.optim.SGD):
    """Is made of a module."""

    def __init__(self, model: Any, lr: float = 0.1) -> None:
        super().__init__(model.parameters(), lr=lr)


class Failing(torch.optim.SGD):
    """Fails at its fifth step."""

    count = 0

    def step(self, closure: Any = None) -> None:
        Failing.count += 1
        if Failing.count > 5:
            raise RuntimeError("out of luck")
        super().step()


class Polyak(torch.optim.Optimizer):
    """Steps by the loss, and begins to count in its groups and in a pair at the first step."""

    def __init__(self, params: Any, best: float = 0.0) -> None:
        super().__init__(params, {"best": best})
        self.pair = (torch.zeros(1), torch.zeros(2))

    @torch.no_grad()
    def step(self, loss: Any) -> None:
        params = [param for group in self.param_groups for param in group["params"]]
        norm = torch.stack([param.grad.norm() for param in params]).norm()
        self.pair = (self.pair[0] + loss, self.pair[1] + 1)
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            for param in group["params"]:
                param.add_(param.grad, alpha=-float((loss - group["best"]) / (norm**2 * (1 + group["steps"]))))
