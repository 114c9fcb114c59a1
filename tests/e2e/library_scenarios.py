# SPDX-License-Identifier: Apache-2.0
"""Programs that call CUDA's libraries, several at once. Functions of (sandbox, clients), as in scenarios.py."""

from sandbox import Sandbox
from scenario_tools import finish, require

# The libraries have PTX for softgpu from this compute capability on (docs/decisions/0041).
CAPABILITY = {"SOFTGPU_CC": "13.0"}
# For one of four trainings at once, which take 20 s of two idle cores.
TRAINING_LIMIT_S = 300


def trained_together(box, _):
    """LeNet as 1, 2 and 4 programs at once gives the losses and parameters of one by itself, without OpenMPS."""
    def run(where, programs):
        children = [where.start(["lenet"]) for _ in range(programs)]
        return {finish(child, "lenet", TRAINING_LIMIT_S) for child in children}

    box.env.update(CAPABILITY)
    alone = Sandbox(box.build, "softgpu", box.driver, CAPABILITY)
    try:
        wanted = run(alone, 1)
        left = alone.leftovers()
    finally:
        alone.close()
    require(not left, "\n".join(left))
    box.start_daemon()
    for programs in (1, 2, 4):
        got = run(box, programs)
        require(got == wanted, f"{programs} programs: {got} instead of {wanted}")
    box.quit()


LIBRARIES = (trained_together,)
