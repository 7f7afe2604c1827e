"""Pure decisions: `diff` (what changed), `plan` (what replaces), `field_managers` (owners)."""
