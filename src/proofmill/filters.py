FILTERS = {}
NEEDS_LABELS = set()
def names_in(keep): return [k if isinstance(k,str) else next(iter(k)) for k in keep]
