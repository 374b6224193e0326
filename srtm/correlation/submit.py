"""For spark-submit, which knows a Python program by the end of its file's name:

spark-submit --master yarn .../srtm/correlation/submit.py correlate run --trace DIR --out DIR
"""

import sys

if __name__ == "__main__":
    del sys.path[0]  # of this folder, whose modules have names of Python's own
    from srtm.cli.main import main

    main()
