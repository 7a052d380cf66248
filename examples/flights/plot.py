"""A plot of the delays: a map of routes and hours, and a time series of the year."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from pathlib import Path

from .findings import Group, Results, busiest, mean

ROUTES = 14
DAYS = 7
COLOURS = {"EWR": "#4477aa", "JFK": "#cc6677", "LGA": "#228833"}


def draw(routes: Results, days: Results, target: Path) -> None:
    """Save the plot as SVG or PNG, by the suffix of the name.

    Args:
        routes: delays by "JFK-LAX/8", as read back from their topic.
        days: delays by "JFK/2013-01-31", as read back from their topic.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    # Text elements instead of paths: half the size, and equal files for equal delays.
    plt.rcParams.update({"svg.hashsalt": "flights", "svg.fonttype": "none"})
    names = busiest(routes)[:ROUTES]
    hours = sorted({delay["hour"] for delay in routes.values() if delay["route"] in names})
    grid = np.full((len(names), len(hours)), np.nan)
    for y, name in enumerate(names):
        for x, hour in enumerate(hours):
            delay = routes.get(f"{name}/{hour}")
            if delay is not None and delay["arrived"]:
                grid[y, x] = mean(delay)

    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8), layout="constrained")
    left.set_facecolor("#dddddd")  # no flights
    image = left.pcolormesh(np.ma.masked_invalid(grid), cmap="RdBu_r", vmin=-45, vmax=45)
    left.set_xticks([x + 0.5 for x in range(len(hours))], hours)
    left.set_yticks([y + 0.5 for y in range(len(names))], names)
    left.invert_yaxis()
    left.set_xlabel("hour of the scheduled departure")
    left.set_title("Mean arrival delay of the busiest routes")
    figure.colorbar(image, ax=left, label="minutes", extend="both")

    by_airport: dict[str, dict[date, Group]] = defaultdict(dict)
    for key, delay in days.items():
        airport, _, day = key.partition("/")
        by_airport[airport][date.fromisoformat(day)] = delay
    for airport, delays in sorted(by_airport.items()):
        ordered = sorted(delays)
        smooth = []
        for at in range(len(ordered)):
            week = [delays[day] for day in ordered[max(0, at - DAYS + 1) : at + 1]]
            arrived = sum(delay["arrived"] for delay in week)
            smooth.append(sum(delay["minutes"] for delay in week) / max(1, arrived))
        right.plot(ordered, smooth, label=airport, color=COLOURS.get(airport), linewidth=1.3)
    right.axhline(0, color="grey", linewidth=0.6)
    right.set_title(f"Mean arrival delay of the last {DAYS} days")
    right.set_ylabel("minutes")
    right.legend(title="from")
    right.tick_params(axis="x", labelrotation=30)
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)
    plt.close(figure)
