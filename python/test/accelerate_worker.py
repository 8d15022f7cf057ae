"""A rank of test_accelerate: the loop by an Accelerator with the plugin, and by a plain one."""
import json
import os
import sys

import accelerate

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from test_accelerate import ACCUMULATION, CONFIG, Loop  # noqa: E402

from patrickstar.integrations import Accelerator, PatrickStarPlugin  # noqa: E402

folder = sys.argv[1]


def accelerator():
    return Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION, patrickstar_plugin=PatrickStarPlugin(CONFIG))


ours = Loop(accelerator()).run()
ours.accelerator.save_state(os.path.join(folder, "state"))
resumed = Loop(accelerator())
resumed.accelerator.load_state(os.path.join(folder, "state"))
plain = Loop(accelerate.Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)).run()
found = {name: {"losses": loop.losses, "norms": loop.norms, "rates": loop.rates,
                "weight": loop.accelerator.get_state_dict(loop.model)["0.weight"].tolist()}
         for name, loop in (("ours", ours), ("resumed", resumed), ("plain", plain))}
if ours.accelerator.is_main_process:
    with open(os.path.join(folder, "found.json"), "w") as file:
        json.dump(found, file)
ours.accelerator.wait_for_everyone()
