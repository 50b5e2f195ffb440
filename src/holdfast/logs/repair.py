"""Plan the repair of a log of any format, and apply the plan.

The format repairs the entries.  Side files that `verify` finds damaged are set aside: replicas
register again, and an application commits its next batch anew.  So a log is clean after a repair.
"""

from dataclasses import replace
from typing import Any

from holdfast.cuts import set_aside
from holdfast.disk import Disk
from holdfast.logs.opening import format_of
from holdfast.logs.repairing import Keep, RepairPlan
from holdfast.logs.verify import damaged_side_files


def plan_repair(disk: Disk, *, keep: Keep = "before") -> RepairPlan[Any]:
    """Return what repair would keep and lose.  Reads everything, changes nothing."""
    plan: RepairPlan[Any] = format_of(disk).plan_repair(disk, keep=keep)
    return replace(plan, side_files=damaged_side_files(disk, last_index=plan.kept[1]))


def apply_repair(disk: Disk, plan: RepairPlan[Any]) -> None:
    """Own the log and apply the plan, unless the log has changed since.

    Nothing is deleted: .cut files keep what is cut out.
    """
    format, side_files = format_of(disk), damaged_side_files(disk, last_index=plan.kept[1])
    plan.refuse_if_changed(replace(plan, side_files=side_files))
    format.apply_repair(disk, replace(plan, side_files=()))
    if plan.side_files:
        with format.open_writer(disk):  # its lock
            for name in dict.fromkeys(damage.file for damage in plan.side_files):
                set_aside(disk, name)
