"""Pure decisions: `diff` (what changed), `force_new` (what replaces), `plan`, `field_managers` (owners)."""
