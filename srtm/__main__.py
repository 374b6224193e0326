from srtm.cli import main

main()
