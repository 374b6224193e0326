from srtm.cli.main import main

main()
