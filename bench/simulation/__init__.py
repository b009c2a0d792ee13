"""Hours of the product's scheduling in minutes: its own modules, unmodified, in simulated time.

Simulated are users, workers with their slots, and the time that messages take. Real are the order between tiers
(`scheduler.fairness`), rooms, budgets and drain with their scripts on a real Redis (`scheduler.room`,
`scheduler.budgets`, `scheduler.estimates`), and the gates (`scheduler.admission`), all by the simulation's clock.
"""
