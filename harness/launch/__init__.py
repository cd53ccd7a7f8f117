"""The files of a launch, shared by the ranks that write them and the planning side that reads them."""
