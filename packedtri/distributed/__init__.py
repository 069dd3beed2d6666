"""One matrix on several processes: products, solves and factors of triangles that are cut in parts.

Nobody calls them. The ops do, for a DTensor that spreads the stored elements of each matrix
(``Shard(-1)``): ``packedtri._dtensor`` imports this package when it first meets a DTensor.
"""
