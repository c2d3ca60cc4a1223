# What changed between the images of a folder, oldest name first: a report with DuckDB.
#
#     python -m pip install duckdb
#     python report.py /snapshots/vol1
import pathlib
import sys

import duckdb

import cbt


def main(folder: str) -> None:
    images = sorted(pathlib.Path(folder).glob("*.img"))
    # [report]
    database = duckdb.connect()
    database.execute("create table changed (base text, target text, byte_offset ubigint, size_bytes ubigint)")
    for base, target in zip(images, images[1:]):
        with cbt.open_source(target, "image", base=base) as cursor:
            # DuckDB reads the extents as they are, through Arrow.
            extents = cursor.read_all()
        database.register("extents", extents)
        database.execute("insert into changed select ?, ?, * from extents", [base.stem, target.stem])
    # [/report]
    # [queries]
    print(database.sql("""select base, target, count(*) as extents, sum(size_bytes) // 1024 as kib
                          from changed group by all order by target"""))
    print(database.sql("""select byte_offset >> 20 as mib, sum(size_bytes) // 1024 as kib, count(distinct target) as times
                          from changed group by all order by kib desc, mib limit 5"""))
    # [/queries]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: report.py FOLDER")
    main(sys.argv[1])
