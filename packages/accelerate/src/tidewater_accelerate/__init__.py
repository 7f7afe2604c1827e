"""Accelerate's ``Accelerator`` for elastic training: import it from here, and the script keeps its loop.

    from tidewater_accelerate import Accelerator    # instead of `from accelerate import Accelerator`

accelerator  the class, for scripts
job          this worker's part in the job: what is trained, its epochs and steps, and its end
loaders      what scripts iterate over
wrapped      optimizers and schedulers that obey the job
support      which arguments and members of Accelerate's class are supported (pure)
arguments    the runtime's flags among those of the script (pure)
"""

from tidewater_accelerate.accelerator import Accelerator, parse_args

__all__ = ["Accelerator", "parse_args"]
