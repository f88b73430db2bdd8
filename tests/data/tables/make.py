"""Write the tables of this directory, one set of transitions in every format, with the libraries that people use.

Needs numpy, h5py and pyarrow; run it in this directory. The numbers come from a seeded generator of whole and half
steps, so that they are the same in every format and precision.
"""

import csv
import json

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DIM, ACTIONS = 2, 1


def episodes(lengths, seed):
    """Episodes of a walk in quarter steps; the last row of every second one terminated, of the others truncated."""
    random = np.random.default_rng(seed)
    out = []
    for k, length in enumerate(lengths):
        steps = random.integers(-8, 9, (length, DIM)) / 4
        states = np.concatenate([np.zeros((1, DIM)) + 64 * k, steps]).cumsum(0)
        end = np.arange(length) == length - 1
        out.append(
            {
                "states": states,
                "actions": random.integers(-3, 4, (length, ACTIONS)) / 2,
                "rewards": random.integers(-20, 21, length) / 8,
                "terminated": end & (k % 2 == 0),
                "truncated": end & (k % 2 == 1),
            }
        )
    return out


def write_csv(name, columns):
    with open(name, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))


def columns_of(rows):
    """The columns of CSV for arrays by their names in NPZ."""
    columns = {}
    singular = {"states": "state", "next_states": "next_state", "rewards": "reward", "discounts": "discount"}
    singular |= {"actions": "action", "streams": "stream", "seqs": "seq", "next_actions": "next_action"}
    singular |= {"behavior_probs": "behavior_prob", "target_probs": "target_prob"}
    for name, values in rows.items():
        values = np.asarray(values)
        name = singular.get(name, name)
        if values.ndim == 2:
            columns |= {f"{name}_{k}": values[:, k].tolist() for k in range(values.shape[1])}
        else:
            columns[name] = values.tolist()
    return columns


def full():
    """Two interleaved streams with every column that there is."""
    a, b = episodes([7, 5, 6], 1), episodes([9, 9], 2)
    streams = {"left arm": a, "rechts": b}
    rows = []
    for name, parts in streams.items():
        seq = 3
        for part in parts:
            for i in range(len(part["rewards"])):
                row = {key: part[key][i] for key in ("actions", "rewards", "terminated", "truncated")}
                row |= {"states": part["states"][i], "next_states": part["states"][i + 1]}
                row |= {"streams": name, "seqs": seq, "discounts": 0.5 if seq % 2 else 0.75}
                rows.append((seq, name, row))
                seq += 1 if seq != 5 else 2
    rows = [row for _, _, row in sorted(rows, key=lambda row: row[:2])]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def write_full():
    rows = full()
    columns = columns_of(rows)
    write_csv("full.csv", columns)
    np.savez("full.npz", **rows)
    single = {
        key: values.astype("f4") if values.dtype == np.float64 else values for key, values in rows.items()
    }
    single |= {
        "states": np.asfortranarray(single["states"]),
        "rewards": rows["rewards"].astype(">f8")[:, None],
        "seqs": rows["seqs"].astype("i4"),
        "terminated": rows["terminated"].astype("u1"),
        "streams": np.char.encode(rows["streams"], "utf-8"),
        "_note": np.array(["skipped"]),
    }
    np.savez_compressed("full_compressed.npz", **single)
    with open("full.jsonl", "w") as file:
        for i in range(len(rows["rewards"])):
            line = {k: v[i] for k, v in columns.items() if not k.startswith(("state", "next_state", "trunc", "term"))}
            line |= {"state": rows["states"][i].tolist(), "next_state": rows["next_states"][i].tolist()}
            # What has a default may be left out.
            line |= {key: True for key in ("terminated", "truncated") if rows[key][i]}
            file.write(json.dumps({"v": 1, "session": "s", **line}) + "\n")
    with open("flat.jsonl", "w") as file:
        for i in range(len(rows["rewards"])):
            file.write(json.dumps({name: values[i] for name, values in columns.items()}) + "\n\n")
    table = pa.table(columns)
    pq.write_table(table, "full.parquet", row_group_size=10)
    pq.write_table(table, "full_zstd.parquet", compression="zstd", version="1.0", use_dictionary=False)


def write_pieces():
    """States alone: the next row is the successor. Some cells are empty."""
    rows = {"states": [], "rewards": [], "terminated": [], "truncated": []}
    for part in episodes([6, 5, 1, 4], 3):
        rows["states"] += part["states"][: len(part["rewards"])].tolist()
        for key in ("rewards", "terminated", "truncated"):
            rows[key] += part[key].tolist()
    rows = {key: np.array(values) for key, values in rows.items()}
    rows["rewards"][rows["truncated"]] = np.nan
    columns = columns_of(rows)
    blank = [None if np.isnan(reward) else reward for reward in columns["reward"]]
    write_csv("pieces.csv", columns | {"reward": ["" if r is None else r for r in blank]})
    np.savez("pieces.npz", **rows)
    pq.write_table(pa.table(columns | {"reward": blank}), "pieces.parquet")
    with open("pieces.jsonl", "w") as file:
        for i, reward in enumerate(blank):
            line = {"state": rows["states"][i].tolist(), "reward": reward}
            line |= {key: bool(rows[key][i]) for key in ("terminated", "truncated")}
            file.write(json.dumps(line) + "\n")


def write_policies():
    """One stream that goes on and on, cut by starts_chain alone; some rows do not say what a policy does."""
    states = np.arange(13) / 4
    n = len(states) - 1
    rows = {
        "states": states[:-1, None],
        "next_states": states[1:, None],
        "rewards": np.arange(n) / 8,
        "actions": np.arange(n) % 3,
        "terminated": np.arange(n) == n - 1,
        "starts_chain": np.isin(np.arange(n), (0, 4, 9)),
        "behavior_probs": np.where(np.arange(n) < 6, 0.25, 0.5),
        "target_probs": np.arange(n) % 4 / 4,
        "next_actions": (np.arange(n) + 1.0) % 3,
        "next_action_probs": np.tile([0.25, 0.25, 0.5], (n, 1)),
    }
    rows["target_probs"][7] = rows["behavior_probs"][8] = rows["next_actions"][-1] = np.nan
    rows["next_action_probs"][-1] = np.nan
    np.savez("policies.npz", **rows)
    columns = {
        name: [None if isinstance(value, float) and np.isnan(value) else value for value in values]
        for name, values in columns_of(rows).items()
    }
    write_csv("policies.csv", {name: ["" if v is None else v for v in values] for name, values in columns.items()})
    pq.write_table(pa.table(columns), "policies.parquet")
    with open("policies.jsonl", "w") as file:
        for i in range(n):
            line = {name: values[i] for name, values in columns.items() if not name[-1].isdigit()}
            line |= {"state": rows["states"][i].tolist(), "next_state": rows["next_states"][i].tolist()}
            if i < n - 1:
                line |= {"next_action": [line["next_action"]], "next_action_probs": [0.25, 0.25, 0.5]}
            file.write(json.dumps(line) + "\n")


def write_acted():
    """Which policy acted, by name."""
    names = ["soft"] * 4 + ["stiff"] * 5 + ["soft"] * 3
    n = len(names)
    rows = {
        "states": np.arange(n)[:, None] / 4,
        "next_states": (np.arange(n)[:, None] + 1.0) / 4,
        "rewards": np.arange(n) / 8,
        "terminated": np.arange(n) == n - 1,
    }
    columns = columns_of(rows)
    np.savez("acted.npz", **rows, policies=np.array(names))
    pq.write_table(pa.table(columns | {"policy": names}), "acted.parquet")
    write_csv("acted.csv", columns | {"policy": names})
    with open("acted.jsonl", "w") as file:
        for i in range(n):
            line = {name: values[i] for name, values in columns.items()}
            file.write(json.dumps(line | {"policy": names[i]}) + "\n")


def write_trajectory():
    """One piece with one more state than rewards."""
    (part,) = episodes([12], 4)
    np.savez("trajectory.npz", **part)
    whole = {"states": part["states"][:-1], "next_states": part["states"][1:]}
    whole |= {key: part[key] for key in ("actions", "rewards", "terminated", "truncated")}
    write_csv("trajectory.csv", columns_of(whole))


def write_minari():
    """Twelve episodes, stored so that the order of names is not that of ids; the third says nothing about its end."""
    parts = episodes([3, 4, 2, 5, 1, 3, 2, 2, 3, 4, 3, 2], 5)
    parts[2]["terminated"][:] = False
    with h5py.File("minari.hdf5", "w", track_order=True) as file:
        for k in (7, 3, 11, 0, 1, 10, 2, 4, 5, 6, 8, 9):
            part, group = parts[k], file.create_group(f"episode_{k}")
            group.attrs["id"] = k
            group.attrs["total_steps"] = len(part["rewards"])
            packed = {"compression": "gzip", "chunks": True} if k % 2 else {}
            group.create_dataset("observations", data=part["states"].astype("f4" if k % 3 else "f8"), **packed)
            group.create_dataset("actions", data=part["actions"].astype("f4"), **packed)
            group.create_dataset("rewards", data=part["rewards"], **packed)
            group.create_dataset("terminations", data=part["terminated"], **packed)
            group.create_dataset("truncations", data=part["truncated"], **packed)
            group.create_group("infos")
    whole, seq = {}, 0
    for part in parts:
        n = len(part["rewards"])
        rows = {"states": part["states"][:-1], "next_states": part["states"][1:], "seqs": np.arange(seq, seq + n)}
        rows |= {key: part[key] for key in ("actions", "rewards", "terminated", "truncated")}
        seq += n + 1
        for key, values in rows.items():
            whole.setdefault(key, []).extend(values.tolist())
    write_csv("minari.csv", columns_of({key: np.array(values) for key, values in whole.items()}))
    with h5py.File("dict_space.hdf5", "w") as file:
        group = file.create_group("episode_0")
        group.create_dataset("observations/position", data=np.zeros((3, 2)))
        for name in ("rewards", "terminations", "truncations"):
            group.create_dataset(name, data=np.zeros(2))


def write_d4rl():
    parts = episodes([6, 5, 4], 6)
    flat = {key: np.concatenate([part[key] for part in parts]) for key in ("actions", "rewards")}
    flat["observations"] = np.concatenate([part["states"][:-1] for part in parts])
    following = np.concatenate([part["states"][1:] for part in parts])
    ends = {"terminals": "terminated", "timeouts": "truncated"}
    ends = {name: np.concatenate([part[key] for part in parts]) for name, key in ends.items()}
    columns = {"states": flat["observations"], "next_states": following} | {k: flat[k] for k in ("actions", "rewards")}
    columns |= {"terminated": ends["terminals"], "truncated": ends["timeouts"]}
    for name, with_next in (("d4rl", False), ("d4rl_next", True)):
        with h5py.File(f"{name}.hdf5", "w") as file:
            for key, values in (flat | ends).items():
                packed = {"compression": "gzip"} if values.dtype == np.float64 and with_next else {}
                values = values.astype("f4") if values.dtype == np.float64 else values
                file.create_dataset(key, data=values, **packed)
            if with_next:
                file.create_dataset("next_observations", data=following.astype("f4"), compression="gzip", shuffle=True)
            file.create_dataset("infos/qpos", data=np.zeros((3, 3)))
        write_csv(f"{name}.csv", columns_of({k: v for k, v in columns.items() if with_next or k != "next_states"}))
    with h5py.File("d4rl_no_ends.hdf5", "w") as file:
        for key, values in flat.items():
            file.create_dataset(key, data=values)
        file.create_dataset("next_observations", data=following)
    with h5py.File("d4rl_no_timeouts.hdf5", "w") as file:
        for key, values in flat.items():
            file.create_dataset(key, data=values)
        file.create_dataset("terminals", data=ends["terminals"])
    with h5py.File("huge.hdf5", "w") as file:
        # Nothing is stored of it: it is a claim.
        file.create_dataset("observations", shape=(10**12, 2), chunks=(1024, 2), dtype="f8")
        for key in ("rewards", "terminals", "timeouts"):
            file.create_dataset(key, shape=(10**12,), chunks=(1024,), dtype="f8")
    with h5py.File("huge_later.hdf5", "w") as file:
        # The claim comes behind an array that cannot be unpacked: whoever reads that first complains of it.
        states = file.create_dataset("observations", shape=(4, 2), chunks=(4, 2), dtype="f8", compression="gzip")
        states.id.write_direct_chunk((0, 0), b"no gzip")
        file.create_dataset("rewards", shape=(10**12,), chunks=(1024,), dtype="f8")
        for key in ("terminals", "timeouts"):
            file.create_dataset(key, data=np.zeros(4, dtype=bool))


def write_others():
    """What other writers of Parquet choose, and a log in HDF5 whose rows came twice."""
    columns = {
        "state_0": pa.array([0.5, 0.25]),
        "action": pa.array([3_000_000_000, 7], pa.uint32()),
        "reward": pa.array([1.0, 2.0]),
        "terminated": pa.array([False, True]),
        "seq": pa.array([1 << 63, (1 << 63) + 1], pa.uint64()),
    }
    for codec in ("gzip", "brotli", "lz4"):
        pq.write_table(pa.table(columns), f"other_{codec}.parquet", compression=codec)
    half = {**columns, "state_0": pa.array(np.array([0.5, 0.25], np.float16))}
    pq.write_table(pa.table(half), "other_half.parquet")
    exact = {**columns, "reward": columns["reward"].cast(pa.decimal128(10, 2))}
    pq.write_table(pa.table(exact), "other_decimal.parquet")
    pq.write_table(pa.table(columns), "other_unsigned.parquet")
    for name, order in (("log", range(8)), ("log_twice", [*range(8), *range(8)]), ("log_early", range(8))):
        k = np.array(list(order))
        with h5py.File(f"{name}.hdf5", "w") as file:
            file["mission"], file["t"] = k // 4, (k % 4).astype("f8")
            file["x"], file["cost"] = 10.0 * (k // 4) + 0.5 * (k % 4), k * 7 % 5
            file["failed"] = k % 4 == (1 if name == "log_early" else 3)


if __name__ == "__main__":
    write_full()
    write_pieces()
    write_policies()
    write_acted()
    write_trajectory()
    write_minari()
    write_d4rl()
    write_others()
